//! A tenant with very many events, beside one with few.

use end_to_end::{
    outsider::connect_any,
    proxy::{Mode, Proxy},
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem, metric, until_metric},
    wait::until,
};
use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use uuid::Uuid;

use crate::isolation::{LONG, events, options};

/// About so many jobs a second make a flood.
const FLOOD: u32 = 50;
const MANY: usize = 600;
/// As many as the share of a webhook: none waits for its own.
const FEW: usize = 4;

fn flooded() -> Options {
    let mut options = options(32, 8);
    options.settings.push(("INGEST__FLOOD", FLOOD.to_string()));
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_waits_behind_itself_and_another_tenants_jobs_do_not() {
    let system = TestSystem::serving(flooded(), [Service::Api]).await;
    // The dispatcher declares the queues.
    system.start(Service::Dispatcher).await;
    system.stop(Service::Dispatcher).await;
    system.start(Service::Ingest).await;
    let (many, few) = (Uuid::new_v4(), Uuid::new_v4());
    let receiver = Receiver::start(&system.ca, always(200));
    for (tenant, path) in [(many, "/many"), (few, "/few")] {
        system.admin(tenant).await.create(&receiver.url(path), &["quote.closed"]).await;
    }
    let stored = async |deliveries: usize| {
        system.until_count("SELECT count(*) FROM deliveries", deliveries as i64, LONG).await;
        system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
    };
    system.upstream.publish(&events(many, MANY)).await;
    stored(MANY).await;
    system.upstream.publish(&events(few, FEW)).await;
    stored(MANY + FEW).await;
    let bulk = system.names.bulk();
    until("most wait in bulk", LONG, || async { system.upstream.ready(&bulk).await > 30 }).await;

    system.start(Service::Dispatcher).await;
    let received = receiver.wait_for(MANY + FEW, LONG).await;
    let last = received.iter().rposition(|one| one.path == "/few").unwrap();
    println!("the last of {FEW} came as number {last} of {}", received.len());
    assert!(last < MANY * 3 / 4, "the last of {FEW} came as number {last} of {}", received.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_retries_of_a_flood_take_its_lane_and_are_made_once() {
    // The only retry is the last attempt, so that each delivery ends with it.
    let options = Options { schedule: "1s", ..flooded() };
    let system = TestSystem::prepared(options).await;
    for service in [Service::Api, Service::Ingest] {
        system.start(service).await;
    }
    let ops = system.start(Service::Dispatcher).await;
    let tenant = Uuid::new_v4();
    let failing = Receiver::start(&system.ca, always(500));
    system.admin(tenant).await.create(&failing.url("/"), &["quote.closed"]).await;
    system.upstream.publish(&events(tenant, MANY)).await;
    let dropped = r#"webhooks_deliveries_finished_total{state="dropped"}"#;
    until_metric(ops, dropped, MANY as f64, LONG).await;
    assert_eq!(failing.received().len(), 2 * MANY);
    let moved = metric(ops, "webhooks_jobs_moved_to_bulk_lane_total").await;
    println!("{moved} of {MANY} retries were moved");
    assert!((MANY as f64 / 2.0..=MANY as f64).contains(&moved), "{moved} of {MANY} retries were moved");
}

/// Publishes messages to the main lane that are marked as of the bulk lane, and are no jobs.
async fn publish_marked(system: &System, messages: usize) {
    let connection = connect_any(&system.amqp_url).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let mut headers = FieldTable::default();
    headers.insert("x-bulk".into(), AMQPValue::LongLongInt(1));
    let (exchange, queue) = (system.names.exchange(), system.names.main());
    for _ in 0..messages {
        let (options, properties) =
            (BasicPublishOptions::default(), BasicProperties::default().with_headers(headers.clone()));
        let published =
            channel.basic_publish(exchange.as_str().into(), queue.as_str().into(), options, b"no job", properties);
        published.await.unwrap().await.unwrap();
    }
    connection.close(200, "bye".into()).await.unwrap();
}

/// Messages that a dispatcher did not move before it lost its connection come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_counts_as_moved_once_it_is_in_the_bulk_lane() {
    const MESSAGES: u32 = 20;
    let system = TestSystem::prepared(options(32, 8)).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let ops = system.start_with(Service::Dispatcher, system.settings_with(&[("BROKER__URL", &url)])).await;
    let moved = async || metric(ops, "webhooks_jobs_moved_to_bulk_lane_total").await;
    // Part of the name of the connection on which it publishes.
    proxy.set(Mode::HoldRequests("(publish)"));
    publish_marked(&system, MESSAGES as usize).await;
    let held = r#"webhooks_consumer_unacknowledged{queue="deliveries"}"#;
    until_metric(ops, held, f64::from(MESSAGES), LONG).await;
    assert_eq!(moved().await, 0.0);
    proxy.set(Mode::Refuse);
    system.upstream.wait_ready(&system.names.main(), MESSAGES, LONG).await;
    until_metric(ops, held, 0.0, LONG).await;
    assert_eq!(moved().await, 0.0, "none was moved");
    proxy.set(Mode::Pass);
    system.upstream.wait_ready(&system.names.dead(), MESSAGES, LONG).await;
    until("each is counted once", LONG, || async { moved().await == f64::from(MESSAGES) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_reaches_all_webhooks_of_its_tenant_alike() {
    const EVENTS: usize = 300;
    let system = TestSystem::prepared(flooded()).await;
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.start(service).await;
    }
    let (tenant, paths) = (Uuid::new_v4(), ["/one", "/two", "/three"]);
    let (receiver, admin) = (Receiver::start(&system.ca, always(200)), system.admin(tenant).await);
    for path in paths {
        admin.create(&receiver.url(path), &["quote.closed"]).await;
    }
    system.upstream.publish(&events(tenant, EVENTS)).await;
    let received = receiver.wait_for(paths.len() * EVENTS, LONG).await;
    let first = paths.map(|path| received.iter().rposition(|one| one.path == path).unwrap()).into_iter().min();
    let until_then = &received[..=first.unwrap()];
    for path in paths {
        let count = until_then.iter().filter(|one| one.path == path).count();
        println!("{path}: {count} of {EVENTS} when the first webhook had all");
        assert!(count >= EVENTS / 4, "{path} had {count} of {EVENTS} when another had all");
    }
}
