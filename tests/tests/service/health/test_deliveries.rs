//! Test deliveries are in the log, and count nowhere else.

use domain::OutcomeClass::{Status as Failure, Success};
use end_to_end::system::{System, TestSystem};
use ledger::Attempted;

use crate::health::{Health, late::Records};

async fn are_tests(system: &System, attempts: &[&Attempted]) {
    for attempt in attempts {
        system.sql(&format!("UPDATE deliveries SET is_test = true WHERE id = '{}'", attempt.id)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_with_tests_only_the_other_attempts_count() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let of_webhook = format!("WHERE webhook_id = '{}'", records.webhook);
    let count = async |what: &str| system.count(&format!("SELECT {what} {of_webhook}")).await;
    let first = records.attempt(Success, 1).await;
    are_tests(&system, &[&first]).await;
    assert_eq!(records.record(&[first]).await, Health { failures: 0, succeeded_at: None }, "only a test reached it");

    let (failure, dropped_test) = (records.attempt(Failure, 5).await, records.attempt(Failure, 6).await);
    let test = records.attempt(Success, 10).await;
    are_tests(&system, &[&dropped_test, &test]).await;
    let failed = Health { failures: 1, succeeded_at: None };
    assert_eq!(records.record(&[test, dropped_test, failure.clone()]).await, failed);
    for column in ["attempts", "dropped"] {
        assert_eq!(count(&format!("sum({column})::bigint FROM webhook_stats")).await, 1, "{column}");
    }
    // The notice names the first dropped delivery: a test is none of these.
    assert_eq!(count("dropped::bigint FROM webhook_health").await, 1);
    let first = format!("count(*) FILTER (WHERE first_dropped_id = '{}') FROM webhook_health", failure.id);
    assert_eq!(count(&first).await, 1);
    assert_eq!(records.logged(&system).await, 4, "each of them is logged");

    // A batch of nothing else leaves the row as it is, and so ends no failing period of which administrators were told.
    system.sql(&format!("UPDATE webhook_health SET failing_notices = 1 {of_webhook}")).await;
    let row = format!("SELECT to_jsonb(h)::text FROM webhook_health AS h {of_webhook}");
    let before: String = system.sql(&row).await[0].get(0);
    let (failed, succeeded) = (records.attempt(Failure, 15).await, records.attempt(Success, 20).await);
    are_tests(&system, &[&failed, &succeeded]).await;
    records.record(&[failed, succeeded]).await;
    assert_eq!(system.sql(&row).await[0].get::<_, String>(0), before);
    assert_eq!(count("count(*) FROM notices").await, 1 + 1, "of its registration and of the first drop");
}
