//! Counters at the end of their type: one webhook's number is nobody else's affair.

use domain::OutcomeClass::Status;
use end_to_end::system::TestSystem;

use crate::health::late::Records;

const END: u64 = 2_147_483_647;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_stop_at_the_end_of_their_type_and_all_attempts_are_recorded() {
    let system = TestSystem::shared().await;
    let one = Records::of(&system).await;
    let neighbour = one.of_another_webhook().await;
    one.record(&[one.attempt(Status, 1).await]).await;
    for change in [
        "webhook_health SET failure_count = 2147483646, dropped = 2147483647, previous_dropped = 2147483647",
        "webhook_stats SET attempts = 2147483646, dropped = 2147483647",
    ] {
        system.sql(&format!("UPDATE {change} WHERE webhook_id = '{}'", one.webhook)).await;
    }
    for second in 2..5 {
        one.record(&[one.attempt(Status, second).await, neighbour.attempt(Status, second).await]).await;
    }
    assert_eq!((one.logged(&system).await, neighbour.logged(&system).await), (4, 3));
    assert_eq!((one.health().await.failures, neighbour.health().await.failures), (END, 3));
    let most = format!("SELECT max(attempts)::bigint FROM webhook_stats WHERE webhook_id = '{}'", one.webhook);
    assert_eq!(u64::try_from(system.count(&most).await), Ok(END));
}
