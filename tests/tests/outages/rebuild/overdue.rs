//! A queue that is gone, and dispatchers that are merely behind.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use domain::DeliveryId;
use end_to_end::{
    history::made,
    proxy::{Mode, Proxy},
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually, until},
};
use futures_util::future::join_all;
use lapin::options::QueuePurgeOptions;
use service_kit::Settings;
use uuid::Uuid;

use crate::rebuild::{Consumers, LONG, again, are_back, events, more_passes, options, passes, with_grace};

const FINISHED: &str = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
/// As if nobody had worked for two hours.
const HOURS_LATER: &str = "UPDATE deliveries SET created_at = created_at - interval '2 hours' WHERE state = 'pending'";

/// A tenant, the receiver that it registered, and the ingest.
pub(super) async fn without_dispatchers(system: &System) -> (Uuid, Receiver, SocketAddr) {
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    (tenant, receiver, system.start(Service::Ingest).await)
}

async fn finished(system: &System, deliveries: usize) {
    eventually("all are recorded", LONG, || async {
        (system.count(FINISHED).await == deliveries as i64).then_some(())
    })
    .await;
}

/// Asserts that the receiver got each delivery once.
fn each_once(receiver: &Receiver, deliveries: usize) {
    let received = receiver.received();
    let ids: HashSet<_> = received.iter().filter_map(|one| one.header("x-service-webhook-id")).collect();
    assert_eq!((ids.len(), received.len()), (deliveries, deliveries));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_queue_was_deleted_come_back_and_each_is_done_once() {
    let system = TestSystem::prepared(options()).await;
    let (tenant, receiver, ingest) = without_dispatchers(&system).await;
    system.upstream.publish(&events(tenant, 90)).await;
    let queue = system.names.main();
    until("the jobs wait", SOON, || async { system.upstream.ready(&queue).await == 90 }).await;
    system.upstream.delete_queue(&queue).await;
    system.start(Service::Dispatcher).await;
    until("they are back", LONG, || async { again(ingest, "overdue").await >= 90.0 }).await;
    finished(&system, 90).await;
    each_once(&receiver, 90);
    assert_eq!(again(ingest, "overdue").await, 90.0);
}

/// The jobs wait in a retry queue for their second attempt. They come back within six graces after they are due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_retry_queue_was_deleted_come_back_after_they_are_due() {
    const GAP: Duration = Duration::from_secs(10);
    const JOBS: usize = 50;
    let system = TestSystem::prepared(Options { schedule: "10s,20s", ..options() }).await;
    let tenant = Uuid::new_v4();
    let first_fails = behaviour(|_, nth| if nth == 1 { Reply::status(500) } else { Reply::ok() });
    let receiver = Receiver::start(&system.ca, first_fails);
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    let ingest = system.start(Service::Ingest).await;
    system.start(Service::Dispatcher).await;
    system.upstream.publish(&events(tenant, JOBS)).await;
    let queue = system.names.retry(GAP);
    system.upstream.wait_ready(&queue, JOBS as u32, SOON).await;
    system.upstream.delete_queue(&queue).await;
    finished(&system, JOBS).await;
    each_twice(&receiver, JOBS);
    assert_eq!(again(ingest, "overdue").await, JOBS as f64);
    let late = "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id \
                    WHERE a.attempt = 2 AND a.started_at > d.first_failed_at + interval '10 s' + 6 * interval '3 s'";
    assert_eq!(system.count(late).await, 0, "within six graces");
}

fn each_twice(receiver: &Receiver, deliveries: usize) {
    let received = receiver.received();
    let ids: HashSet<_> = received.iter().filter_map(|one| one.header("x-service-webhook-id")).collect();
    assert_eq!((ids.len(), received.len()), (deliveries, 2 * deliveries));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_lost_jobs_are_enqueued_again_in_a_minute_and_each_job_once() {
    const LOST: usize = 2_500;
    let system = TestSystem::prepared(options()).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    system.stop(Service::Api).await;
    let ingest = system.start(Service::Ingest).await;
    let consumers = Consumers::start(&system).await;
    made(&system, tenant, &webhook.id, LOST, "'succeeded'").await;
    // All in one statement, and long overdue.
    system.sql("UPDATE deliveries SET state = 'pending', created_at = created_at - interval '1 minute'").await;
    until("they are back", LONG, || async { again(ingest, "overdue").await >= 1_000.0 }).await;
    more_passes(ingest, "done", 20.0).await;
    assert_eq!(again(ingest, "overdue").await, 1_000.0);
    assert_eq!(system.count("SELECT count(*) FROM requeued_jobs WHERE times = 1").await, 1_000);
    let jobs: Vec<DeliveryId> = consumers.take().iter().map(|job| job.delivery).collect();
    assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (1_000, 1_000));
}

/// No time counts in which the lanes have no consumer: after two hours without dispatchers, none of the jobs is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatchers_that_come_back_after_two_hours_get_no_job_twice() {
    const JOBS: usize = 3_000;
    let system = TestSystem::prepared(with_grace("10s")).await;
    let (tenant, receiver, ingest) = without_dispatchers(&system).await;
    system.upstream.publish(&events(tenant, JOBS)).await;
    let stored = "SELECT count(*) FROM deliveries";
    until("all are stored", LONG, || async { system.count(stored).await == JOBS as i64 }).await;
    system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
    system.sql(HOURS_LATER).await;
    more_passes(ingest, "done", 120.0).await;
    system.start(Service::Dispatcher).await;
    finished(&system, JOBS).await;
    each_once(&receiver, JOBS);
    assert_eq!(again(ingest, "overdue").await, 0.0);
}

/// A small backlog is no more lost than a large one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_without_dispatchers_is_not_enqueued_again() {
    let system = TestSystem::prepared(with_grace("1s")).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    system.upstream.publish(&events(tenant, 20)).await;
    system.upstream.wait_ready(&system.names.main(), 20, SOON).await;
    system.sql(HOURS_LATER).await;
    more_passes(ingest, "done", 100.0).await;
    assert_eq!(again(ingest, "overdue").await, 0.0);
}

/// After the database was unavailable, the time that counts begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_unavailable_no_job_gets_lost() {
    const JOBS: usize = 300;
    let system = TestSystem::prepared(with_grace("8s")).await;
    let (proxy, url) = Proxy::before(&system.database_url);
    let mut variables = system.variables.clone();
    variables.insert("WEBHOOKS__DATABASE__URL".to_owned(), url);
    let through = || Settings::from_sources(None, variables.clone()).unwrap();
    let (tenant, slow) = (Uuid::new_v4(), behaviour(|_, _| Reply::ok().after(Duration::from_millis(300))));
    let receiver = Receiver::start(&system.ca, slow);
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await.id;
    let ingest = system.start_with(Service::Ingest, through()).await;
    system.start_with(Service::Dispatcher, through()).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    system.sql("UPDATE deliveries SET attempts = 0").await;
    let is_found = || async { (again(ingest, "overdue").await == 1.0).then_some(()) };
    eventually("all have worked for a grace", LONG, is_found).await;
    finished(&system, 1).await;
    system.upstream.publish(&events(tenant, JOBS)).await;
    receiver.wait_for(1 + JOBS / 10, LONG).await;
    proxy.set(Mode::Refuse);
    system.sql(HOURS_LATER).await;
    until("nobody leads", LONG, || async { leaders(ingest).await == 0.0 }).await;
    proxy.set(Mode::Pass);
    finished(&system, 1 + JOBS).await;
    each_once(&receiver, 1 + JOBS);
    assert_eq!(again(ingest, "overdue").await, 1.0);
}

/// So it does after a moment without the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_pass_a_whole_grace_passes_before_a_job_is_lost() {
    let system = TestSystem::prepared(with_grace("6s")).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let mut variables = system.variables.clone();
    variables.insert("WEBHOOKS__BROKER__URL".to_owned(), url);
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await.id;
    let ingest = system.start_with(Service::Ingest, Settings::from_sources(None, variables).unwrap()).await;
    let _consumers = Consumers::start(&system).await;
    more_passes(ingest, "done", 20.0).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    proxy.set(Mode::Refuse);
    let fails = async || (passes(ingest, "failed").await + passes(ingest, "doubtful").await > 0.0).then_some(());
    eventually("a pass fails", SOON, fails).await;
    let began: std::time::SystemTime = system.sql("SELECT now()").await[0].get(0);
    proxy.set(Mode::Pass);
    are_back(ingest, 1.0).await;
    let lost: std::time::SystemTime = system.sql("SELECT requeued_at FROM requeued_jobs").await[0].get(0);
    let after = lost.duration_since(began).unwrap();
    assert!(after > Duration::from_secs(6), "{after:?} after the failed pass");
}

async fn leaders(ingest: SocketAddr) -> f64 {
    end_to_end::system::metric(ingest, "webhooks_maintenance_leader").await
}

/// One lost job, and lanes whose consumers hold a message each. The jobs that wait are of no delivery.
async fn beside_waiting(
    queue: impl Fn(&System) -> String,
    messages: usize,
    test: impl AsyncFnOnce(&System, SocketAddr, String),
) {
    let system = TestSystem::prepared(with_grace("1s")).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    let queue = queue(&system);
    let job = domain::Job { delivery: Uuid::new_v4().into(), attempt: 1 }.to_bytes();
    for _ in 0..messages.div_ceil(500) {
        let exchange = system.names.exchange();
        join_all((0..500).map(|_| system.upstream.publish_to(&exchange, &queue, &job))).await;
    }
    let _consumers = Consumers::holding(&system, 1).await;
    let webhook: String = system.sql("SELECT id::text FROM webhooks").await[0].get(0);
    made(&system, tenant, &webhook, 1, "'pending'").await;
    test(&system, ingest, queue).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_bulk_lane_is_full_no_job_is_enqueued_again() {
    beside_waiting(
        |system| system.names.bulk(),
        10_500,
        async |system, ingest, queue| {
            more_passes(ingest, "done", 100.0).await;
            assert_eq!(again(ingest, "overdue").await, 0.0);
            let connection = end_to_end::outsider::connect_any(&system.amqp_url).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
            until("it is back", SOON, || async { again(ingest, "overdue").await == 1.0 }).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_main_lane_holds_much_a_job_is_lost_after_six_graces() {
    beside_waiting(
        |system| system.names.main(),
        500,
        async |system, ingest, _| {
            let began: time::OffsetDateTime =
                system.sql("SELECT now()").await[0].get::<_, std::time::SystemTime>(0).into();
            until("it is back", SOON, || async { again(ingest, "overdue").await == 1.0 }).await;
            let after: std::time::SystemTime = system.sql("SELECT requeued_at FROM requeued_jobs").await[0].get(0);
            let after = time::OffsetDateTime::from(after) - began;
            // The consumers began a moment before.
            assert!(after > time::Duration::milliseconds(5_000), "{after} after the consumers began");
        },
    )
    .await;
}
