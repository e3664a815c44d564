//! Finds webhooks with held jobs of a partition that is soon deleted, and adds notices for their administrators.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    error::LedgerError,
    leader::Leader,
    statement::{rows, sql},
};

/// Webhooks that one statement looks at.
const WEBHOOKS: i64 = 1_000;

/// The result of a step through the webhooks with held jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// The webhook after which the next step begins. `None` at the end.
    pub next: Option<Uuid>,
    /// Webhooks that were looked at.
    pub looked: i64,
    /// Notices that were added.
    pub notified: i64,
}

rows! { Expiring { next, looked, notified } }

impl Leader {
    /// Looks at the next webhooks after `after` with held jobs. Adds the notice `webhook.expiring` where the day of the oldest
    /// one's delivery goes within a week, `age` after its end: once a pause, or once a week of a slow webhook.
    ///
    /// # Errors
    /// When the database does not answer. The step can be taken again.
    pub async fn expiring_notify(&mut self, after: Uuid, age: Duration) -> Result<Expiring, LedgerError> {
        let notify =
            sql(format!(include_str!("notify_expiring.sql"), rows = WEBHOOKS)).bind(after).bind(age.as_secs_f64());
        self.run("expiring_notify", async |conn| notify.get_result(conn).await).await
    }
}
