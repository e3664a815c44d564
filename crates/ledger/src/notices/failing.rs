//! Finds webhooks that have been failing for long, and adds notices for their administrators.

use std::time::Duration;

use crate::{error::LedgerError, leader::Leader, statement::sql};

/// When administrators are told that a webhook is failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingThresholds {
    /// The first failure since the last success is at least this old.
    pub after: Duration,
    /// At least so many attempts have failed since.
    pub attempts: u32,
    /// They are told again when it has failed for these times.
    pub again_after: Vec<Duration>,
}

impl Leader {
    /// Adds a notice for each webhook that has been failing for long enough, and again later; up to 500 at a time.
    /// Whoever missed times tells once. Returns how many notices were added.
    ///
    /// # Errors
    /// When the database does not answer. Then none is added.
    pub async fn failing_tell(&mut self, thresholds: &FailingThresholds) -> Result<usize, LedgerError> {
        let again: Vec<f64> = thresholds.again_after.iter().map(Duration::as_secs_f64).collect();
        let query = sql(include_str!("tell_failing.sql"))
            .bind(thresholds.after.as_secs_f64())
            .bind(i32::try_from(thresholds.attempts).unwrap_or(i32::MAX))
            .bind(again);
        self.run("failing_tell", async |conn| query.execute(conn).await).await
    }
}
