//! What waits for a webhook, and what did not arrive: bounded look-ups, however much there is.

use std::collections::HashMap;

use diesel::{
    QueryableByName,
    sql_types::{Array, BigInt, Bool, Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

/// Counts of a webhook's deliveries. Each stops at [`Backlog::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries that wait for a retry, or for the webhook's activation.
    pub waiting: i64,
    /// Deliveries that were dropped.
    pub dropped: i64,
    /// Deliveries that were skipped.
    pub skipped: i64,
    /// When the next retry is due: of the oldest [`Backlog::MOST`] that wait for one.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Whether deliveries that wait are being cancelled.
    pub is_cancelling: bool,
    /// True while deliveries are held although the webhook is active: its receiver answers late or not at all.
    pub is_queued: bool,
}

impl Backlog {
    /// The most of each kind that is counted.
    pub const MOST: i64 = 1_000;
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SqlUuid)]
    webhook_id: Uuid,
    #[diesel(sql_type = BigInt)]
    waiting: i64,
    #[diesel(sql_type = BigInt)]
    dropped: i64,
    #[diesel(sql_type = BigInt)]
    skipped: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    next_attempt_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Bool)]
    is_cancelling: bool,
    #[diesel(sql_type = Bool)]
    is_queued: bool,
}

/// The backlogs of these webhooks.
pub(super) async fn of(conn: &mut AsyncPgConnection, webhooks: &[Uuid]) -> diesel::QueryResult<HashMap<Uuid, Backlog>> {
    let query = diesel::sql_query(include_str!("backlog.sql"));
    let query = query.bind::<Array<SqlUuid>, _>(webhooks).bind::<BigInt, _>(Backlog::MOST);
    let rows: Vec<Row> = query.load(conn).await?;
    let read = |Row { webhook_id, waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued }| {
        (webhook_id, Backlog { waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued })
    };
    Ok(rows.into_iter().map(read).collect())
}
