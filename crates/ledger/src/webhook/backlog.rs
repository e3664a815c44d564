//! What waits for a webhook, and what did not arrive: bounded look-ups, however much there is.

use std::collections::HashMap;

use diesel_async::AsyncPgConnection;
use domain::WebhookId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::statement::{rows, sql};

/// Counts of a webhook's deliveries. Each stops at [`Backlog::MAX_COUNT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries that wait for a retry, or for the webhook's activation.
    pub waiting: i64,
    /// Deliveries that were dropped.
    pub dropped: i64,
    /// Deliveries that were skipped.
    pub skipped: i64,
    /// When the next retry is due: of the oldest [`Backlog::MAX_COUNT`] that wait for one.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Whether deliveries that wait are being cancelled.
    pub is_cancelling: bool,
    /// True while deliveries are held although the webhook is active: its receiver answers late or not at all.
    pub is_queued: bool,
    /// The running recovery.
    pub recovery: Option<Uuid>,
    /// The number of deliveries that the running recovery has sent again.
    pub recovered: i32,
}

impl Backlog {
    /// The most of each kind that is counted.
    pub const MAX_COUNT: i64 = 1_000;
}

struct BacklogRow {
    webhook_id: WebhookId,
    backlog: Backlog,
}

rows! {
    Backlog { waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued, recovery, recovered }
    BacklogRow { webhook_id; backlog }
}

/// The backlogs of these webhooks.
pub(super) async fn of(
    conn: &mut AsyncPgConnection,
    webhooks: &[WebhookId],
) -> diesel::QueryResult<HashMap<WebhookId, Backlog>> {
    let query = sql(include_str!("backlog.sql")).bind(webhooks).bind(Backlog::MAX_COUNT);
    let rows: Vec<BacklogRow> = query.load(conn).await?;
    Ok(rows.into_iter().map(|row| (row.webhook_id, row.backlog)).collect())
}
