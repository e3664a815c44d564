//! After an outage of the service (crates/README.md, invariant 4).

use std::time::Duration;

use end_to_end::{
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem},
    wait::{SOON, until},
};
use time::OffsetDateTime;

use crate::retries::{attempts, ended, first_failed_at, no_message_is_left, publish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_retries_of_a_delivery_stay_the_shortest_step_apart() {
    let options = Options { schedule: "4s,5s,6s,7s", ..Options::default() };
    let system = TestSystem::running(options).await;
    let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(always(500)).await;
    publish(&system, tenant).await;
    let failed = first_failed_at(&system).await;
    system.stop(Service::Dispatcher).await;
    let overdue = failed + Duration::from_secs(8);
    until("every retry is overdue", SOON, || async {
        let came_back = system.upstream.ready(&system.names.main()).await == 1;
        came_back && OffsetDateTime::now_utc() > overdue
    })
    .await;
    let again = OffsetDateTime::now_utc();
    system.start(Service::Dispatcher).await;
    ended(&system, &webhook, "dropped", 5).await;
    let attempts = attempts(&system, &webhook).await;
    assert!(attempts[1].started_at >= again, "the outage lasted until the second attempt");
    for pair in attempts[1..].windows(2) {
        let apart = pair[1].started_at - pair[0].started_at;
        assert!(apart >= Duration::from_millis(900), "{apart} apart: {attempts:?}");
    }
    let all = attempts[4].started_at - attempts[1].started_at;
    assert!(all <= Duration::from_secs(8), "they took {all}, not about three steps: {attempts:?}");
    no_message_is_left(&system).await;
    assert_eq!(receiver.received().len(), 5);
}
