//! The ledger's stamps of webhooks that may have jobs in the slow lane.

use std::time::Duration;

use end_to_end::system::System;

use crate::rebuild::options;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stamp_that_was_not_renewed_expires_while_the_lane_is_taken_from_and_stays_while_it_is_not() {
    System::prepared(options(), async |system| {
        let candidate = system.ledger_as("stamps", 1).candidate().await.unwrap();
        let mut leader = candidate.lead().await.unwrap().unwrap_or_else(|_| panic!("nobody else leads"));
        let stamp = async |minutes: u32| {
            let stamp = "INSERT INTO slow_webhooks SELECT gen_random_uuid(), now() -";
            system.sql(&format!("{stamp} interval '{minutes} minutes'")).await;
        };
        let left = async || system.count("SELECT count(*) FROM slow_webhooks").await;
        for minutes in [3, 7, 20] {
            stamp(minutes).await;
        }
        leader.slow_forget_while_taken(MINUTE * 5).await.unwrap();
        assert_eq!(left().await, 3, "nobody takes anything from the lane");
        stamp(0).await;
        leader.slow_forget_while_taken(MINUTE * 5).await.unwrap();
        assert_eq!(left().await, 2, "those of 7 and 20 minutes");
        leader.slow_forget(MINUTE).await.unwrap();
        assert_eq!(left().await, 1, "the lane is empty: that of 3 minutes");
    })
    .await;
}
