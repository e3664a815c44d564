//! A queue that is gone, and dispatchers that are merely behind.

use std::{collections::HashSet, net::SocketAddr};

use domain::{DeliveryId, Job};
use end_to_end::{
    history::made,
    receiver::{Receiver, always},
    system::{Service, System},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::rebuild::{LONG, again, events, more_passes, options, passes};

/// A tenant, the receiver that it registered, and the ingest.
async fn without_dispatchers(system: &System) -> (Uuid, Receiver, SocketAddr) {
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    (tenant, receiver, system.start(Service::Ingest).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_whose_queue_was_deleted_come_back_and_each_is_done_once() {
    System::prepared(options(), async |system| {
        let (tenant, receiver, ingest) = without_dispatchers(&system).await;
        system.upstream.publish(&events(tenant, 90)).await;
        let queue = system.names.main();
        eventually("the jobs wait", SOON, || async { (system.upstream.ready(&queue).await == 90).then_some(()) }).await;
        system.upstream.delete_queue(&queue).await;
        eventually("they are back", LONG, || async { (again(ingest, "overdue").await >= 90.0).then_some(()) }).await;
        more_passes(ingest, "behind", 10.0).await;
        assert_eq!(system.upstream.ready(&queue).await, 90);
        system.start(Service::Dispatcher).await;
        let received = receiver.wait_for(90, LONG).await;
        let finished = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
        eventually("all are recorded", LONG, || async { (system.count(finished).await == 90).then_some(()) }).await;
        let ids: HashSet<_> = received.iter().filter_map(|one| one.header("x-service-webhook-id")).collect();
        assert_eq!((ids.len(), receiver.received().len()), (90, 90));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_queue_of_lost_jobs_is_back_after_a_few_passes_and_each_job_once() {
    const LOST: usize = 25_000;
    System::prepared(options(), async |system| {
        let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
        system.start(Service::Api).await;
        let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
        system.stop(Service::Api).await;
        let ingest = system.start(Service::Ingest).await;
        more_passes(ingest, "done", 1.0).await;
        made(&system, tenant, &webhook.id, LOST, "'succeeded'").await;
        // All in one statement, and long overdue.
        system.sql("UPDATE deliveries SET state = 'pending', created_at = created_at - interval '1 minute'").await;
        let all = LOST as f64;
        eventually("they are back", LONG, || async { (again(ingest, "overdue").await >= all).then_some(()) }).await;
        // The queue is long here. What was found out while it was short still holds.
        more_passes(ingest, "behind", 10.0).await;
        let acted = passes(ingest, "acted").await;
        assert!(acted <= 10.0, "it took {acted} passes");
        assert_eq!(again(ingest, "overdue").await, all);
        assert_eq!(system.count("SELECT count(*) FROM requeued_jobs WHERE times = 1").await, LOST as i64);
        let mut jobs: Vec<DeliveryId> = Vec::new();
        while let Some(message) = system.upstream.take(&system.names.bulk()).await {
            jobs.extend(Job::parse(&message.delivery.data).unwrap().iter().map(|job| job.delivery));
        }
        assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (LOST, LOST));
    })
    .await;
}

async fn behind(backlog: usize) {
    System::prepared(options(), async |system| {
        let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
        more_passes(ingest, "done", 15.0).await;
        system.upstream.publish(&events(tenant, backlog)).await;
        more_passes(ingest, "behind", 20.0).await;
        assert_eq!(system.upstream.ready(&system.names.main()).await as usize, backlog);
        assert_eq!(again(ingest, "overdue").await, 0.0);
        assert_eq!(passes(ingest, "acted").await, 0.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_without_dispatchers_is_not_enqueued_again() {
    behind(400).await;
}

/// Takes the jobs of the main lane away. They are lost, but nobody can tell while the bulk lane holds jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_is_one_in_the_bulk_lane_while_the_main_lane_is_empty() {
    let mut options = options();
    options.settings.push(("INGEST__FLOOD", "10".to_owned()));
    System::prepared(options, async |system| {
        let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
        more_passes(ingest, "done", 15.0).await;
        let (main, bulk) = (system.names.main(), system.names.bulk());
        system.upstream.publish(&events(tenant, 400)).await;
        system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
        eventually("they wait", LONG, || async { (system.upstream.ready(&bulk).await > 0).then_some(()) }).await;
        more_passes(ingest, "behind", 1.0).await;
        while system.upstream.take(&main).await.is_some() {}
        more_passes(ingest, "behind", 20.0).await;
        assert_eq!(system.upstream.ready(&main).await, 0);
        assert_eq!(again(ingest, "overdue").await, 0.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_even_a_small_one() {
    behind(20).await;
}
