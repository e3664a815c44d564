//! A queue that is gone, and dispatchers that are merely behind.

use std::{collections::HashSet, net::SocketAddr};

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::{LONG, again, events, more_passes, options, passes};

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
        let queue = system.names.deliveries();
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

async fn behind(backlog: usize) {
    System::prepared(options(), async |system| {
        let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
        more_passes(ingest, "done", 15.0).await;
        system.upstream.publish(&events(tenant, backlog)).await;
        more_passes(ingest, "behind", 20.0).await;
        assert_eq!(system.upstream.ready(&system.names.deliveries()).await as usize, backlog);
        assert_eq!(again(ingest, "overdue").await, 0.0);
        assert_eq!(passes(ingest, "acted").await, 0.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_without_dispatchers_is_not_enqueued_again() {
    behind(400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_even_a_small_one() {
    behind(20).await;
}
