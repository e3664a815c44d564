//! Rows beside the log of deliveries that nothing needs any more. The leader walks each table along its key, in bounded
//! steps, and takes what has lost its delivery or its webhook, or is older than anything asks for.

use diesel::{
    QueryableByName,
    pg::Pg,
    sql_types::{BigInt, Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{error::LedgerError, leader::Leader};

/// Rows that one statement looks at.
const STEP: i64 = 1_000;
/// Deleted webhooks that one statement forgets.
const WEBHOOKS: i64 = 100;

/// A table that is walked along its primary key.
struct Walk {
    table: &'static str,
    key: &'static [&'static str],
    /// Whether a row `t` is of no more use; `$1` is the time before which history is not kept.
    is_leftover: &'static str,
}

const NO_DELIVERY: &str = "NOT EXISTS (SELECT FROM deliveries AS d WHERE d.id = t.delivery_id)";
const NO_WEBHOOK: &str = "NOT EXISTS (SELECT FROM webhooks AS w WHERE w.id = t.webhook_id)";

// What belongs to a delivery stays for as long as the delivery, though that may be finished: it may be sent again at any
// moment, and a gone one may not. So nothing is taken that somebody is about to rely on.
const WALKS: [Walk; 7] = [
    Walk { table: "held_jobs", key: &["webhook_id", "delivery_id"], is_leftover: NO_DELIVERY },
    // An api-service publishes or forgets these within seconds, if one runs.
    Walk { table: "promised_jobs", key: &["delivery_id"], is_leftover: NO_DELIVERY },
    // A mark of a day ago says nothing of the next begin. That a job is parked counts for as long as there is its delivery.
    Walk {
        table: "suspect_jobs",
        key: &["delivery_id"],
        is_leftover: "t.marked_at < now() - interval '1 day' AND (t.parked_as IS NULL OR {NO_DELIVERY})",
    },
    // The same attempt is enqueued again after 32 hours at the latest.
    Walk { table: "requeued_jobs", key: &["delivery_id"], is_leftover: "t.requeued_at < now() - interval '3 days'" },
    Walk { table: "recoveries", key: &["id"], is_leftover: "(t.finished_at < $1 OR {NO_WEBHOOK})" },
    Walk { table: "slow_webhooks", key: &["webhook_id"], is_leftover: NO_WEBHOOK },
    Walk { table: "webhook_health", key: &["webhook_id"], is_leftover: NO_WEBHOOK },
];

/// Tables that do not grow for ever in another way, and which.
const OTHERS: [(&str, &str); 8] = [
    ("webhooks", "deleted ones go with their last delivery"),
    ("events", "by day"),
    ("deliveries", "by day"),
    ("attempts", "by day"),
    ("admin_sessions", "when they have expired"),
    ("broker_generation", "has one row"),
    ("delivery_ids", "has one row"),
    ("__diesel_schema_migrations", "has a row for each migration"),
];

/// How far the walks have come: the last key that was looked at, by table.
pub(crate) type Cursors = [(Uuid, Uuid); WALKS.len()];

/// The tables that retention keeps from growing for ever.
pub fn retained_tables() -> impl Iterator<Item = &'static str> {
    WALKS.iter().map(|walk| walk.table).chain(OTHERS.iter().map(|(table, _)| *table))
}

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    first: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    second: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = BigInt)]
    gone: i64,
}

impl Leader {
    /// Takes one step: forgets a bounded number of webhooks that were deleted before `before` and of which no delivery is
    /// left (with their health), and looks at a bounded number of rows of every other table that would grow for ever.
    /// Returns 0 when nothing was deleted and each walk has come to its end; the next step begins them anew.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn leftovers_clean(&mut self, before: OffsetDateTime) -> Result<usize, LedgerError> {
        let mut work = self.webhooks_forget(before).await?;
        for (index, walk) in WALKS.iter().enumerate() {
            let after = self.leftovers[index];
            let statement = walk.statement(after, before);
            let step: Step = self.run(async |conn| statement.get_result(conn).await).await?;
            let reached = step.first.zip(step.second).filter(|_| step.looked == STEP);
            self.leftovers[index] = reached.unwrap_or_default();
            work += usize::try_from(step.gone).unwrap_or_default() + usize::from(reached.is_some());
        }
        Ok(work)
    }

    async fn webhooks_forget(&mut self, before: OffsetDateTime) -> Result<usize, LedgerError> {
        let forget = diesel::sql_query(format!(
            "WITH gone AS (DELETE FROM webhooks WHERE id = ANY (ARRAY( \
               SELECT id FROM webhooks AS w WHERE deleted_at < $1 \
               AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.webhook_id = w.id) LIMIT {WEBHOOKS})) RETURNING id \
             ), health AS (DELETE FROM webhook_health AS h USING gone WHERE h.webhook_id = gone.id) \
             SELECT id FROM gone"
        ));
        let forget = forget.bind::<Timestamptz, _>(before);
        self.run(async |conn| forget.execute(conn).await).await
    }
}

impl Walk {
    fn statement(
        &self,
        (first, second): (Uuid, Uuid),
        before: OffsetDateTime,
    ) -> diesel::query_builder::BoxedSqlQuery<'static, Pg, diesel::query_builder::SqlQuery> {
        let Self { table, key, is_leftover } = self;
        let is_leftover = is_leftover.replace("{NO_DELIVERY}", NO_DELIVERY).replace("{NO_WEBHOOK}", NO_WEBHOOK);
        let columns = |alias: &str| key.iter().map(|column| format!("{alias}{column}")).collect::<Vec<_>>().join(", ");
        let (plain, of_table, of_step) = (columns(""), columns("t."), columns("step."));
        let descending = key.iter().map(|column| format!("{column} DESC")).collect::<Vec<_>>().join(", ");
        let (one, two) = (key[0], key[key.len() - 1]);
        let after = if key.len() == 1 { "$2" } else { "$2, $3" };
        let query = diesel::sql_query(format!(
            "WITH step AS MATERIALIZED ( \
               SELECT {plain} FROM {table} WHERE ({plain}) > ({after}) ORDER BY {plain} LIMIT {STEP} \
             ), gone AS ( \
               DELETE FROM {table} AS t USING step WHERE ({of_table}) = ({of_step}) AND {is_leftover} RETURNING t.{one} \
             ) SELECT last.first, last.second, \
                      (SELECT count(*) FROM step) AS looked, (SELECT count(*) FROM gone) AS gone \
               FROM (SELECT 1) AS one LEFT JOIN \
                    (SELECT {one} AS first, {two} AS second FROM step ORDER BY {descending} LIMIT 1) AS last ON true"
        ));
        let query = query.into_boxed::<Pg>().bind::<Timestamptz, _>(before).bind::<SqlUuid, _>(first);
        if key.len() == 1 { query } else { query.bind::<SqlUuid, _>(second) }
    }
}
