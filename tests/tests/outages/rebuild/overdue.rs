//! A queue that is gone, and dispatchers that are merely behind.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use end_to_end::{
    events::Event,
    history::made,
    proxy::{Mode, Proxy},
    receiver::{Receiver, Reply, always, behaviour, fails_then_succeeds},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::{SOON, eventually, until},
};
use futures_util::future::join_all;
use lapin::options::QueuePurgeOptions;
use uuid::Uuid;

use crate::rebuild::{Consumers, LONG, again, are_back, more_passes, options, passes, with_grace};

const FINISHED: &str = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
/// As if nobody had worked for two hours.
const HOURS_LATER: &str = "UPDATE deliveries SET created_at = created_at - interval '2 hours' WHERE state = 'pending'";

/// A tenant, the receiver that it registered, and the ingest.
pub(super) async fn without_dispatchers(system: &System) -> (Uuid, Receiver, SocketAddr) {
    system.start(Service::Api).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    (tenant, receiver, system.start(Service::Ingest).await)
}

async fn finished(system: &System, deliveries: usize) {
    eventually("all are recorded", LONG, || async {
        (system.count(FINISHED).await == deliveries as i64).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_queue_was_deleted_come_back_and_each_is_done_once() {
    let system = TestSystem::prepared(options()).await;
    let (tenant, receiver, ingest) = without_dispatchers(&system).await;
    system.upstream.publish(&Event::closed(tenant, 90)).await;
    let queue = system.names.main();
    until("the jobs wait", SOON, || async { system.upstream.ready(&queue).await == 90 }).await;
    system.upstream.delete_queue(&queue).await;
    system.start(Service::Dispatcher).await;
    until("they are back", LONG, || async { again(ingest, "overdue").await >= 90.0 }).await;
    finished(&system, 90).await;
    assert_eq!(receiver.received_once().len(), 90);
    assert_eq!(again(ingest, "overdue").await, 90.0);
}

/// The jobs wait in a retry queue for their second attempt. They come back within six graces after they are due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_retry_queue_was_deleted_come_back_after_they_are_due() {
    const GAP: Duration = Duration::from_secs(10);
    const JOBS: usize = 50;
    let system = TestSystem::prepared(Options { schedule: "10s,20s", ..options() }).await;
    system.start(Service::Api).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(fails_then_succeeds(1)).await;
    let ingest = system.start(Service::Ingest).await;
    system.start(Service::Dispatcher).await;
    system.upstream.publish(&Event::closed(tenant, JOBS)).await;
    let queue = system.names.retry(GAP);
    system.upstream.wait_ready(&queue, JOBS as u32, SOON).await;
    system.upstream.delete_queue(&queue).await;
    finished(&system, JOBS).await;
    let received = receiver.received();
    let ids: HashSet<_> = received.iter().filter_map(|one| one.header("x-service-webhook-id")).collect();
    assert_eq!((ids.len(), received.len()), (JOBS, 2 * JOBS));
    assert_eq!(again(ingest, "overdue").await, JOBS as f64);
    let late = "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id \
                    WHERE a.attempt = 2 AND a.started_at > d.first_failed_at + interval '10 s' + 6 * interval '3 s'";
    assert_eq!(system.count(late).await, 0, "within six graces");
}

/// No time counts in which the lanes have no consumer: after two hours without dispatchers, none of the jobs is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatchers_that_come_back_after_two_hours_get_no_job_twice() {
    // Few: with many, a job is lost only after six graces.
    const JOBS: usize = 60;
    let system = TestSystem::prepared(with_grace("10s")).await;
    let (tenant, receiver, ingest) = without_dispatchers(&system).await;
    system.upstream.publish(&Event::closed(tenant, JOBS)).await;
    system.until_count("SELECT count(*) FROM deliveries", JOBS as i64, LONG).await;
    system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
    system.sql(HOURS_LATER).await;
    more_passes(ingest, "done", 120.0).await;
    system.start(Service::Dispatcher).await;
    finished(&system, JOBS).await;
    assert_eq!(receiver.received_once().len(), JOBS);
    assert_eq!(again(ingest, "overdue").await, 0.0);
}

/// After the database was unavailable, the time that counts begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_unavailable_no_job_gets_lost() {
    const JOBS: usize = 300;
    let system = TestSystem::prepared(with_grace("8s")).await;
    let (proxy, url) = Proxy::before(&system.database_url);
    let through = || system.settings_with(&[("DATABASE__URL", &url)]);
    system.start(Service::Api).await;
    let slow = behaviour(|_, _| Reply::ok().after(Duration::from_millis(300)));
    let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(slow).await;
    let ingest = system.start_with(Service::Ingest, through()).await;
    system.start_with(Service::Dispatcher, through()).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    system.sql("UPDATE deliveries SET attempts = 0").await;
    let is_found = || async { (again(ingest, "overdue").await == 1.0).then_some(()) };
    eventually("all have worked for a grace", LONG, is_found).await;
    finished(&system, 1).await;
    system.upstream.publish(&Event::closed(tenant, JOBS)).await;
    receiver.wait_for(1 + JOBS / 10, LONG).await;
    proxy.set(Mode::Refuse);
    system.sql(HOURS_LATER).await;
    until("nobody leads", LONG, || async { leaders(ingest).await == 0.0 }).await;
    proxy.set(Mode::Pass);
    finished(&system, 1 + JOBS).await;
    assert_eq!(receiver.received_once().len(), 1 + JOBS);
    assert_eq!(again(ingest, "overdue").await, 1.0);
}

/// So it does after a moment without the broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_pass_a_whole_grace_passes_before_a_job_is_lost() {
    let system = TestSystem::prepared(with_grace("6s")).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    system.start(Service::Api).await;
    let Subscriber { tenant, webhook, .. } = system.subscriber(always(200)).await;
    let ingest = system.start_with(Service::Ingest, system.settings_with(&[("BROKER__URL", &url)])).await;
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

/// Lost jobs, and lanes whose consumers hold a message each. The jobs that wait are of no delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_enqueued_again_while_the_bulk_lane_is_full_and_only_after_six_graces_while_the_main_lane_is_busy() {
    let system = TestSystem::prepared(with_grace("1s")).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    let (exchange, main, queue) = (system.names.exchange(), system.names.main(), system.names.bulk());
    let job = domain::Job { delivery: Uuid::new_v4().into(), attempt: 1 }.to_bytes();
    for _ in 0..21 {
        join_all((0..500).map(|_| system.upstream.publish_to(&exchange, &queue, &job))).await;
    }
    join_all((0..200).map(|_| system.upstream.publish_to(&exchange, &main, &job))).await;
    let consumers = Consumers::holding(&system, 1).await;
    let webhook: String = system.sql("SELECT id::text FROM webhooks").await[0].get(0);
    made(&system, tenant, &webhook, 1, "'pending'").await;
    more_passes(ingest, "done", 100.0).await;
    assert_eq!(again(ingest, "overdue").await, 0.0);
    let channel = consumers.connection.create_channel().await.unwrap();
    channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
    until("it is back", SOON, || async { again(ingest, "overdue").await == 1.0 }).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    until("so is the next one", SOON, || async { again(ingest, "overdue").await == 2.0 }).await;
    let early = "SELECT count(*) FROM requeued_jobs JOIN deliveries ON id = delivery_id \
                     WHERE requeued_at < created_at + interval '6 seconds'";
    assert_eq!(system.count(early).await, 0, "the grace is a second");
}
