//! The partitions of past days, made by the ledger itself.

use time::{Duration, OffsetDateTime};

use crate::environment::Environment;

/// The days, relative to today, that are named to the ledger. It makes the partitions from two days before each to
/// seven days after it.
const NAMED_DAYS: [i64; 5] = [-34, -25, -16, -7, 0];

/// Makes the partitions of the last 36 days. No service may run yet.
pub(super) async fn make(environment: &Environment<'_>) {
    let ledger = environment.system.ledger_as("bench", 1);
    let candidate = ledger.candidate().await.expect("the database answers");
    let Ok(mut leader) = candidate.lead().await.expect("the database answers") else { panic!("a service leads") };
    let today = OffsetDateTime::now_utc().date();
    for days in NAMED_DAYS {
        leader.partitions_ensure(today + Duration::days(days)).await.expect("partitions can be made");
    }
}
