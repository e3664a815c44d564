//! Held jobs: the ledger keeps them for slow receivers, and each comes back by itself, in fair parts, once.

use std::time::{Duration, Instant};

use domain::DeliveryId;
use end_to_end::{
    history::{held, made},
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use futures_util::future::join_all;
use ledger::{JobToHold, ReleaseRate};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::isolation::{LONG, answering_after, events, hanging, now_and_then_slow, options, recorded};

async fn nothing_is_held(system: &System) {
    let left = "SELECT (SELECT count(*) FROM held_jobs) + (SELECT count(*) FROM held_webhooks) + (SELECT count(*) FROM promised_jobs)";
    system.until_count(left, 0, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slow_lane_serves_others_long_before_a_hog_is_done() {
    const HOG: usize = 2_000;
    let system = TestSystem::serving(options(64, 256), [Service::Api]).await;
    let hangs = hanging(&system);
    let others = answering_after(&system, Duration::from_millis(1_200));
    let tenants = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    let hog = system.admin(tenants[0]).await.create(&hangs.url("/hog"), &["quote.closed"]).await;
    made(&system, tenants[0], &hog.id, HOG, "'pending'").await;
    held(&system, &hog.id).await;
    for tenant in &tenants[1..] {
        let webhook = system.admin(*tenant).await.create(&others.url("/other"), &["quote.closed"]).await;
        made(&system, *tenant, &webhook.id, 5, "'pending'").await;
        held(&system, &webhook.id).await;
    }
    system.start(Service::Dispatcher).await;
    others.wait_for(10, LONG).await;
    assert_eq!(recorded(&system, tenants[0]).await, 0, "no attempt of the hog's has ended");
    assert!(hangs.received().len() <= 64 / 8 + 4, "it has as many as its shares");
    let waiting = system.count("SELECT count(*) FROM held_jobs WHERE reason = 'slow'").await;
    assert!(waiting >= 1_900, "{waiting} of the hog's wait in the ledger");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_that_was_held_ends_in_exactly_one_attempt() {
    const EVENTS: usize = 60;
    let system = TestSystem::serving(options(16, 16), [Service::Api, Service::Ingest]).await;
    let dispatchers = [system.start(Service::Dispatcher).await, system.start(Service::Dispatcher).await];
    let tenant = Uuid::new_v4();
    let receiver = now_and_then_slow(&system);
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    system.upstream.publish(&events(tenant, EVENTS)).await;
    receiver.wait_for(EVENTS / 2, LONG).await;
    receiver.behave(always(200));
    receiver.wait_for(EVENTS, LONG).await;
    let done = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{}' AND state = 'succeeded'", webhook.id);
    system.until_count(&done, i64::try_from(EVENTS).unwrap(), LONG).await;
    eventually("nothing is under way", SOON, || async {
        for ops in dispatchers {
            if metric(ops, "webhooks_attempts_in_flight").await > 0.0 {
                return None;
            }
        }
        Some(())
    })
    .await;
    assert_eq!(recorded(&system, tenant).await, i64::try_from(EVENTS).unwrap());
    assert_eq!(receiver.received_once().len(), EVENTS);
    let mut held = 0.0;
    for ops in dispatchers {
        held += metric(ops, "webhooks_jobs_held_total").await;
    }
    println!("{held} were held");
    assert!(held > 10.0, "{held} were held");
    for queue in [system.names.slow(), system.names.main(), system.names.dead(), system.names.unroutable()] {
        assert_eq!(system.upstream.ready(&queue).await, 0, "{queue}");
    }
    nothing_is_held(&system).await;
}

/// Each api-service looks for due jobs every quarter of a second.
const SEVERAL_LOOKS: Duration = Duration::from_secs(2);

/// Nobody has seen a success, and nobody remembers why the jobs were held: all processes are new, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_arrives_although_every_process_is_replaced_in_the_middle() {
    const WEBHOOKS: usize = 8;
    const EACH: usize = 250;
    let system = TestSystem::serving(Options::with([("API__RECOVER_PER_SECOND", "30")]), [Service::Api]).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    for number in 0..WEBHOOKS {
        let webhook = admin.create(&receiver.url(&format!("/{number}")), &["quote.closed"]).await;
        made(&system, tenant, &webhook.id, EACH, "'pending'").await;
        held(&system, &webhook.id).await;
    }
    for part in 1..=2 {
        system.start(Service::Dispatcher).await;
        system.start(Service::Ingest).await;
        receiver.wait_for(part * WEBHOOKS * EACH / 8, LONG).await;
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.stop(service).await;
        }
        assert!(receiver.received().len() < WEBHOOKS * EACH, "some are left");
        system.start(Service::Api).await;
    }
    system.start(Service::Dispatcher).await;
    receiver.wait_for(WEBHOOKS * EACH, LONG).await;
    assert_eq!(receiver.received_once().len(), WEBHOOKS * EACH);
    nothing_is_held(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_webhook_keeps_what_was_held_and_a_deleted_one_cancels_it() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    let mut webhooks = Vec::new();
    for path in ["/paused", "/deleted"] {
        let webhook = admin.create(&receiver.url(path), &["quote.closed"]).await;
        made(&system, tenant, &webhook.id, 20, "'pending'").await;
        webhooks.push(webhook);
    }
    let [paused, deleted] = &webhooks[..] else { unreachable!("there are two") };
    admin.set_active(&paused.id, false).await;
    for webhook in &webhooks {
        held(&system, &webhook.id).await;
    }
    admin.delete(&format!("/api/v1/webhooks/{}/", deleted.id)).await;
    system.start(Service::Dispatcher).await;
    system.until_count("SELECT count(*) FROM held_webhooks", 0, SOON).await;
    let cancelled =
        format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{}' AND state = 'cancelled'", deleted.id);
    system.until_count(&cancelled, 20, SOON).await;
    assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, 20, "of the paused one");
    assert!(receiver.received().is_empty());
    admin.set_active(&paused.id, true).await;
    receiver.wait_for(20, LONG).await;
    assert_eq!(receiver.received_once().len(), 20);
    nothing_is_held(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_has_to_be_held_again_lets_fewer_others_come_back() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    system.stop(Service::Api).await;
    made(&system, tenant, &webhook.id, 2, "'pending'").await;
    held(&system, &webhook.id).await;
    system
        .sql("UPDATE held_webhooks SET batch = 1600, released_at = now(), release_at = now() + interval '1 hour'")
        .await;
    let delivery: Uuid = system
        .sql(
            "DELETE FROM held_jobs WHERE delivery_id = (SELECT min(delivery_id::text)::uuid FROM held_jobs) \
         RETURNING delivery_id::text",
        )
        .await[0]
        .get::<_, &str>(0)
        .parse()
        .unwrap();
    system.start(Service::Api).await;
    system.admin(tenant).await.set_active(&webhook.id, true).await;
    let early = "SELECT count(*) FROM held_webhooks WHERE release_at < now() + interval '30 minutes'";
    assert_eq!(system.count(early).await, 0, "it was active already");
    system.stop(Service::Api).await;
    system.sql("UPDATE held_webhooks SET release_at = released_at + interval '1 second'").await;
    let webhook: Uuid = webhook.id.parse().unwrap();
    let release = ReleaseRate { batch: 1, pause: Duration::from_secs(3) };
    let hold = async |is_again| {
        let job = JobToHold {
            webhook: webhook.into(),
            delivery: delivery.into(),
            delivery_count: 0,
            is_again,
            release: Some(release),
        };
        system.ledger_as("holds", 1).jobs_hold(&[job]).await.unwrap();
        let row =
            system.sql("SELECT batch, extract(epoch FROM release_at - released_at)::integer FROM held_webhooks").await;
        (row[0].get::<_, i32>(0), row[0].get::<_, i32>(1))
    };
    assert_eq!(hold(false).await, (1600, 1), "a new job says nothing of those that come back");
    assert_eq!(hold(true).await, (100, 3));
    for _ in 0..3 {
        hold(true).await;
    }
    assert_eq!(hold(true).await, (1, 3), "never none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_no_dispatcher_runs_jobs_stay_held() {
    const EACH: usize = 1_500;
    let system = TestSystem::serving(Options::with([("API__RECOVER_PER_SECOND", "2000")]), [Service::Api]).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    for path in ["/one", "/other"] {
        let webhook = admin.create(&receiver.url(path), &["quote.closed"]).await;
        made(&system, tenant, &webhook.id, EACH, "'pending'").await;
        held(&system, &webhook.id).await;
    }
    let queue = system.names.slow();
    until("the queue is crowded", LONG, || async { system.upstream.ready(&queue).await > 1_000 }).await;
    // As if much time had passed.
    let waiting = "UPDATE held_webhooks SET release_at = now(), batch = 1000000 RETURNING webhook_id";
    assert_eq!(system.sql(waiting).await.len(), 2, "both have held jobs");
    let looks = async || system.count("SELECT count(*) FROM held_webhooks WHERE release_at <= now()").await;
    let begun = Instant::now();
    while begun.elapsed() < SEVERAL_LOOKS {
        assert_eq!(looks().await, 2, "nobody publishes more");
    }
    system.start(Service::Dispatcher).await;
    receiver.wait_for(2 * EACH, LONG).await;
    assert_eq!(receiver.received_once().len(), 2 * EACH);
    nothing_is_held(&system).await;
}

/// A relay dies after it has released the job. Another one publishes the job, with the number of its deliveries by the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_held_keeps_the_number_of_its_deliveries_when_another_relay_publishes_it() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let tenant = Uuid::new_v4();
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await.id;
    system.stop(Service::Api).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    held(&system, &webhook).await;
    system.sql("UPDATE held_jobs SET delivery_count = 3").await;
    assert!(system.ledger_as("dies", 1).jobs_release(10).await.unwrap().is_some());
    system.sql("UPDATE promised_jobs SET leased_until = now()").await;
    system.start(Service::Api).await;
    let queue = system.names.slow();
    let message = eventually("the job is published", SOON, || system.upstream.take(&queue)).await;
    let headers = message.delivery.properties.headers().clone().unwrap_or_default();
    let number = headers.inner().get("x-handed-out").and_then(|value| value.as_long_string().cloned());
    assert_eq!(number.map(|number| number.to_string()).as_deref(), Some("3"));
    nothing_is_held(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_jobs_than_a_statement_has_parameters_are_released_together() {
    const OF_ONE: i64 = u16::MAX as i64;
    const OF_OTHER: i64 = 999;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let admin = system.admin(Uuid::new_v4()).await;
    let webhooks = [(); 2].map(|()| admin.create("https://localhost/", &["quote.closed"]));
    let webhooks = join_all(webhooks).await;
    system.stop(Service::Api).await;
    let now = DeliveryId::bound_at(OffsetDateTime::now_utc());
    for (webhook, (jobs, release_at)) in webhooks.iter().zip([(OF_OTHER, "-infinity"), (OF_ONE, "epoch")]) {
        let webhook = &webhook.id;
        let add = format!(
            "WITH made AS ( \
               INSERT INTO deliveries (id, webhook_id, event_id, event_type) \
               SELECT derived_id('{now}', i::text::bytea), '{webhook}', gen_random_uuid(), 'quote.closed' \
               FROM generate_series({jobs}, {jobs} * 2 - 1) AS i RETURNING webhook_id, id \
             ), held AS (INSERT INTO held_jobs (webhook_id, delivery_id) SELECT webhook_id, id FROM made) \
             INSERT INTO held_webhooks VALUES ('{webhook}', {jobs}, '{release_at}', '{release_at}')"
        );
        system.sql(&add).await;
    }
    let ledger = system.ledger_as("wakes", 1).with_pool(1, LONG).unwrap();
    let step = ledger.jobs_release(u16::MAX).await.unwrap().unwrap();
    assert_eq!(step.deliveries as i64, OF_ONE + OF_OTHER);
}
