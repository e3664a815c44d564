//! Deletes rows outside the log of deliveries that nothing needs. The leader scans each table along its key in bounded
//! steps, and deletes rows that are too old or whose delivery or webhook is gone.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    leader::{Leader, LeftoversCursor},
    statement::{Statement, sql},
};

/// Rows that one statement reads, in some tens of milliseconds.
const CHUNK_ROWS: u32 = 5_000;
/// Rows that one statement reads of a table whose rows take longer: it searches every day for a delivery of each deleted
/// webhook.
const SMALL_CHUNK_ROWS: u32 = 500;

/// A table that is scanned along its primary key.
struct TableScan {
    table: &'static str,
    key: &'static [&'static str],
    chunk: u32,
    /// Which rows are read.
    range: &'static str,
    /// Whether nothing needs a row `t`. `$1` is the time before which history is not kept.
    is_leftover: &'static str,
}

const NO_DELIVERY: &str = "NOT EXISTS (SELECT FROM deliveries AS d WHERE d.id = t.delivery_id)";
const NO_WEBHOOK: &str = "NOT EXISTS (SELECT FROM webhooks AS w WHERE w.id = t.webhook_id)";
/// The ids of deliveries of days that were over at `$1`.
const IS_OF_OLD_DAY: &str = "delivery_id < (lpad(to_hex(( \
     extract(epoch FROM date_trunc('day', $1, 'UTC')) * 1000)::bigint), 12, '0') || repeat('0', 20) \
   )::uuid";

// What belongs to a delivery stays as long as the delivery, even a finished one, which may be sent again at any moment
// (a gone one may not). So nothing is deleted that somebody is about to rely on.
const SCANS: [TableScan; 12] = [
    // Their rows in other tables follow in later scans. An ingest may store a delivery to a webhook that was deleted a
    // moment ago.
    TableScan {
        chunk: SMALL_CHUNK_ROWS,
        ..scan(
            "webhooks",
            &["id"],
            "t.deleted_at < now() - interval '1 hour' \
             AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.webhook_id = t.id)",
        )
    },
    // A day's drop fires no trigger.
    TableScan { range: IS_OF_OLD_DAY, ..scan("unsuccessful_deliveries", &["delivery_id"], NO_DELIVERY) },
    scan("held_jobs", &["webhook_id", "delivery_id"], NO_DELIVERY),
    // The outbox. An api-service, if one runs, publishes or deletes these within seconds.
    scan("promised_jobs", &["delivery_id"], NO_DELIVERY),
    // A suspect's mark means nothing after a day. That a job is parked counts as long as its delivery exists.
    scan(
        "suspect_jobs",
        &["delivery_id"],
        "t.marked_at < now() - interval '1 day' AND (t.dead_reason IS NULL OR {NO_DELIVERY})",
    ),
    // Lost-job detection enqueues an attempt again after a back-off of at most 32 hours.
    scan("requeued_jobs", &["delivery_id"], "t.requeued_at < now() - interval '3 days'"),
    scan("recoveries", &["id"], "(t.finished_at < $1 OR {NO_WEBHOOK})"),
    scan("held_webhooks", &["webhook_id"], NO_WEBHOOK),
    scan("webhook_health", &["webhook_id"], NO_WEBHOOK),
    scan("notices", &["id"], "t.created_at < now() - interval '90 days' AND t.leased_until IS NULL"),
    // Until then the list shows why a program is refused.
    scan("api_keys", &["id"], "t.expires_at < now() - interval '90 days'"),
    // What is 90 days old goes: of a webhook, what is not among its newest 1,000 entries; of one whose row is gone, all of it
    // 90 days after the deletion, which is its last entry. One look-up finds either: the range over both columns leaves the
    // planner no other index.
    TableScan {
        chunk: SMALL_CHUNK_ROWS,
        ..scan(
            "history",
            &["id"],
            "t.created_at < now() - interval '90 days' AND CASE \
             WHEN EXISTS (SELECT FROM webhooks AS w WHERE w.id = t.webhook_id) THEN EXISTS ( \
                 SELECT FROM history AS h \
                 WHERE (h.webhook_id, h.id) > (t.webhook_id, t.id) \
                     AND (h.webhook_id, h.id) <= (t.webhook_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') \
                 ORDER BY h.webhook_id, h.id OFFSET 999 LIMIT 1) \
             ELSE ( \
                 SELECT h.created_at FROM history AS h \
                 WHERE (h.webhook_id, h.id) <= (t.webhook_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') \
                 ORDER BY h.webhook_id DESC, h.id DESC LIMIT 1 \
             ) < now() - interval '90 days' END",
        )
    },
];

/// A scan of all rows of a table.
const fn scan(table: &'static str, key: &'static [&'static str], is_leftover: &'static str) -> TableScan {
    TableScan { table, key, chunk: CHUNK_ROWS, range: "true", is_leftover }
}

/// Tables that something else keeps from growing for ever, each with the reason.
const OTHER_TABLES: [(&str, &str); 9] = [
    ("webhook_stats", "after 90 days (`Leader::stats_clear`)"),
    ("cancellations", "when they are done"),
    ("events", "by day"),
    ("deliveries", "by day"),
    ("attempts", "by day"),
    ("admin_sessions", "when they have expired"),
    ("broker_generation", "has one row"),
    ("brakes", "an hour after their process died, when any dispatcher is stopped or released"),
    ("__diesel_schema_migrations", "has a row for each migration"),
];

/// The result of a step of the scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// Rows read.
    pub looked: u32,
    /// Rows deleted.
    pub gone: u32,
    /// True if all tables have been scanned. The next step begins anew.
    pub is_last: bool,
}

/// The tables that retention keeps from growing for ever.
pub fn retained_tables() -> impl Iterator<Item = &'static str> {
    SCANS.iter().map(|scan| scan.table).chain(OTHER_TABLES.iter().map(|(table, _)| *table))
}

impl Leader {
    /// Takes one step: reads a bounded number of rows of one table, and deletes those that nothing needs. These are
    /// deleted webhooks that have no delivery left, then rows that are older than `before` or whose delivery or webhook is
    /// gone.
    ///
    /// # Errors
    /// When the database does not answer: the step can be taken again.
    pub async fn leftovers_clear(&mut self, before: OffsetDateTime) -> Result<Cleared, LedgerError> {
        let LeftoversCursor { scan, after } = self.leftovers;
        let statement = SCANS[scan].statement(after, before);
        let (first, second, looked, gone): (Option<Uuid>, Option<Uuid>, i64, i64) =
            self.run("leftovers_clear", async |conn| statement.value(conn).await).await?;
        let rows = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
        let (looked, gone) = (rows(looked), rows(gone));
        let after = first.zip(second).filter(|_| looked == SCANS[scan].chunk);
        let scan = if after.is_some() { scan } else { (scan + 1) % SCANS.len() };
        self.leftovers = LeftoversCursor { scan, after: after.unwrap_or_default() };
        Ok(Cleared { looked, gone, is_last: scan == 0 && after.is_none() })
    }
}

impl TableScan {
    fn statement(&self, (first, second): (Uuid, Uuid), before: OffsetDateTime) -> Statement<'static> {
        let Self { table, key, chunk, range, is_leftover } = self;
        let is_leftover = is_leftover.replace("{NO_DELIVERY}", NO_DELIVERY).replace("{NO_WEBHOOK}", NO_WEBHOOK);
        let columns = |alias: &str| key.iter().map(|column| format!("{alias}{column}")).collect::<Vec<_>>().join(", ");
        let query = sql(format!(
            include_str!("clear_leftovers.sql"),
            table = table,
            key = columns(""),
            key_of_t = columns("t."),
            key_of_step = columns("step."),
            descending = key.iter().map(|column| format!("{column} DESC")).collect::<Vec<_>>().join(", "),
            first = key[0],
            second = key[key.len() - 1],
            after = if key.len() == 1 { "$2" } else { "$2, $3" },
            range = range,
            rows = chunk,
            is_leftover = is_leftover,
        ));
        let query = query.bind(before).bind(first);
        if key.len() == 1 { query } else { query.bind(second) }
    }
}
