//! Finds webhooks that have been failing for long, and adds notices for their administrators.

use std::time::Duration;

use crate::{error::LedgerError, leader::Leader, statement::sql};

/// The time at which administrators are notified that a webhook is failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingThresholds {
    /// The first failure since the last success is at least this old.
    pub after: Duration,
    /// The minimum of attempts that have failed since.
    pub attempts: u32,
    /// Administrators are notified again when the webhook has been failing for these times.
    pub again_after: Vec<Duration>,
}

impl Leader {
    /// Adds a notice for each webhook that has been failing for long enough, and again later; up to 500 at a time.
    /// Times that were missed get one notice together. Returns how many notices were added.
    ///
    /// # Errors
    /// When the database does not answer. Then none is added.
    pub async fn failing_notify(&mut self, thresholds: &FailingThresholds) -> Result<usize, LedgerError> {
        let again: Vec<f64> = thresholds.again_after.iter().map(Duration::as_secs_f64).collect();
        let query = sql(include_str!("notify_failing.sql"))
            .bind(thresholds.after.as_secs_f64())
            .bind(i32::try_from(thresholds.attempts).unwrap_or(i32::MAX))
            .bind(again);
        self.run("failing_notify", async |conn| query.execute(conn).await).await
    }
}
