//! The schedule as the broker's queues (crates/README.md, queues).

use end_to_end::{
    receiver::always,
    system::{Options, Subscriber, TestSystem},
    wait::{SOON, until},
};

use crate::retries::publish;

/// The schedule of the specification, section 8.
const PRODUCTION: &str = "60s,5m,15m,1h,4h,12h";
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_first_attempt_leaves_one_small_job_in_the_queue_of_a_minute() {
    let system = TestSystem::running(Options { schedule: PRODUCTION, ..Options::default() }).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(500)).await;
    publish(&system, tenant).await;
    let queue = format!("{}.retry.60s", system.names.exchange());
    until("the retry waits", SOON, || async { system.upstream.ready(&queue).await == 1 }).await;
    for queue in &system.retry_queues()[1..] {
        assert_eq!(system.upstream.ready(queue).await, 0, "{queue}");
    }
    let id = receiver.received()[0].header("x-service-webhook-id").unwrap().to_owned();
    let message = system.upstream.take(&queue).await.unwrap().delivery;
    let job: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
    assert_eq!(job, serde_json::json!({"v": 1, "delivery_id": id, "attempt": 2}));
    let expires: u64 = message.properties.expiration().clone().unwrap().as_str().parse().unwrap();
    // What is left of the minute since the first failure.
    assert!((30_000..=60_000).contains(&expires), "it expires in {expires} ms");
    let due = "SELECT next_attempt_at - first_failed_at = interval '60 s' FROM deliveries";
    assert!(system.sql(due).await[0].get::<_, bool>(0));
}
