//! Queues that are deleted while the service consumes them.

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem, metric, wait_ready},
    wait::{SOON, until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_whose_queue_is_deleted_declares_it_again_and_goes_on() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let ingest = system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let event = || Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(&[event()]).await;
    receiver.wait_for(1, SOON).await;
    let queues = [(system.names.main(), dispatcher), (system.names.events(), ingest)];
    for (received, (queue, ops)) in (2..).zip(queues) {
        until("the queue is empty", SOON, || async {
            metric(ops, "webhooks_attempts_in_flight").await == 0.0 && system.upstream.ready(&queue).await == 0
        })
        .await;
        system.upstream.delete_queue(&queue).await;
        until("the service consumes again", SOON, || async {
            metric(ops, "webhooks_broker_reconnects_total").await >= 1.0
        })
        .await;
        wait_ready(ops).await;
        assert_eq!(system.upstream.consumers(&queue).await, 1);
        system.upstream.publish(&[event()]).await;
        receiver.wait_for(received, SOON).await;
    }
}
