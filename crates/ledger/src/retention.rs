//! What is too old to keep. Nothing that still waits is ever deleted, and nothing is locked for long.

use std::time::Duration;

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    leader::Leader,
    partitions::{Day, Name, named},
};

/// Rows that one statement looks at.
const BITE: i64 = 1_000;
/// Deleted webhooks that one statement forgets.
const WEBHOOKS: i64 = 100;

/// What became of a day that is older than anything is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its partitions are gone.
    Gone,
    /// A delivery of it still waits: it has to be cleaned of everything else.
    Waiting,
}

/// The cleaning of one partition of deliveries and events, and how far it has come.
#[derive(Clone, Debug)]
pub struct Cleaning {
    part: String,
    before: OffsetDateTime,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Deliveries(Uuid),
    Events(EventKey),
}

type EventKey = (OffsetDateTime, Uuid, Uuid);

/// A bite of a cleaning.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// Rows that are gone, without attempts.
    pub rows: u64,
    /// What remains to be done.
    pub rest: Option<Cleaning>,
}

impl Cleaning {
    /// Of a day whose partitions have to stay.
    #[must_use]
    pub fn of_day(day: Day, before: OffsetDateTime) -> Self {
        Self { part: day.suffix(), before, stage: Stage::Deliveries(Uuid::nil()) }
    }

    /// Of the default partitions, in which events with odd timestamps are: they count by when they came.
    #[must_use]
    pub fn of_default(before: OffsetDateTime) -> Self {
        Self { part: "default".to_owned(), before, stage: Stage::Deliveries(Uuid::nil()) }
    }
}

#[derive(QueryableByName)]
struct DeliveriesBite {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    reached: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = BigInt)]
    gone: i64,
}

#[derive(QueryableByName)]
struct EventsBite {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    occurred_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    tenant_id: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = BigInt)]
    gone: i64,
}

impl Leader {
    /// The days that were over for `keep` at `now`, oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn days_old(&mut self, now: OffsetDateTime, keep: Duration) -> Result<Vec<Day>, LedgerError> {
        let before = now - keep;
        Ok(self.days().await?.into_iter().take_while(|day| day.end() <= before).collect())
    }

    /// Drops a day's partitions, all at once, unless a delivery in them still waits.
    ///
    /// # Errors
    /// When the database does not answer, or somebody reads the day just now: nothing has happened then.
    pub async fn day_drop(&mut self, day: Day) -> Result<Dropped, LedgerError> {
        let suffix = day.suffix();
        let deliveries = format!("deliveries_{suffix}");
        let (first, beyond) = day.ids();
        let waits = diesel::sql_query(
            "SELECT 'waits' AS name WHERE EXISTS \
               (SELECT FROM deliveries WHERE id >= $1 AND id < $2 AND state IN ('pending', 'retrying'))",
        )
        .bind::<SqlUuid, _>(first)
        .bind::<SqlUuid, _>(beyond);
        self.run(async |conn| {
            conn.transaction(async |conn| {
                // While this day is looked through, only those who would revive a delivery of it wait: a resend. The
                // tables themselves are locked by the drop alone, which takes no time.
                if !named(conn, &deliveries).await?.is_empty() {
                    conn.batch_execute(&format!("LOCK TABLE {deliveries} IN SHARE MODE")).await?;
                }
                if !waits.load::<Name>(conn).await?.is_empty() {
                    return Ok(Dropped::Waiting);
                }
                conn.batch_execute(&format!("DROP TABLE IF EXISTS attempts_{suffix}, {deliveries}, events_{suffix}"))
                    .await?;
                Ok(Dropped::Gone)
            })
            .await
        })
        .await
    }

    /// Takes one bite of a cleaning: first deliveries that are finished, with their attempts, then events that no delivery
    /// refers to.
    ///
    /// # Errors
    /// When the database does not answer, or a row is locked: the bite can be taken again.
    pub async fn clean(&mut self, cleaning: &Cleaning) -> Result<Cleaned, LedgerError> {
        let (gone, stage) = match cleaning.stage {
            Stage::Deliveries(after) => self.clean_deliveries(cleaning, after).await?,
            Stage::Events(after) => self.clean_events(cleaning, after).await?,
        };
        let rest = stage.map(|stage| Cleaning { stage, ..cleaning.clone() });
        Ok(Cleaned { rows: u64::try_from(gone).unwrap_or_default(), rest })
    }

    async fn clean_deliveries(
        &mut self,
        Cleaning { part, before, .. }: &Cleaning,
        after: Uuid,
    ) -> Result<(i64, Option<Stage>), LedgerError> {
        let bite = diesel::sql_query(format!(
            "WITH bite AS MATERIALIZED (SELECT id FROM deliveries_{part} WHERE id > $1 ORDER BY id LIMIT {BITE}), gone AS ( \
               DELETE FROM deliveries_{part} AS d WHERE d.id IN (SELECT id FROM bite) AND d.created_at < $2 \
                 AND d.state NOT IN ('pending', 'retrying') RETURNING d.id \
             ), logged AS (DELETE FROM attempts AS a USING gone WHERE a.delivery_id = gone.id) \
             SELECT (SELECT id FROM bite ORDER BY id DESC LIMIT 1) AS reached, \
                    (SELECT count(*) FROM bite) AS looked, (SELECT count(*) FROM gone) AS gone"
        ))
        .bind::<SqlUuid, _>(after)
        .bind::<Timestamptz, _>(*before);
        let bite: DeliveriesBite = self.run(async |conn| bite.get_result(conn).await).await?;
        let stage = match bite.reached {
            Some(reached) if bite.looked == BITE => Stage::Deliveries(reached),
            _ => Stage::Events((ANCIENT, Uuid::nil(), Uuid::nil())),
        };
        Ok((bite.gone, Some(stage)))
    }

    async fn clean_events(
        &mut self,
        Cleaning { part, before, .. }: &Cleaning,
        (at, id, tenant): EventKey,
    ) -> Result<(i64, Option<Stage>), LedgerError> {
        let bite = diesel::sql_query(format!(
            "WITH bite AS MATERIALIZED ( \
               SELECT occurred_at, id, tenant_id, received_at, \
                      greatest(0, (extract(epoch FROM occurred_at) * 1000)::bigint) AS millis FROM events_{part} \
               WHERE (occurred_at, id, tenant_id) > ($1, $2, $3) ORDER BY occurred_at, id, tenant_id LIMIT {BITE} \
             ), gone AS ( \
               DELETE FROM events_{part} AS e USING bite WHERE e.occurred_at = bite.occurred_at AND e.id = bite.id \
                 AND e.tenant_id = bite.tenant_id AND bite.received_at < $4 AND NOT EXISTS ( \
                   SELECT FROM deliveries AS d WHERE d.event_id = bite.id AND \
                     d.id >= (lpad(to_hex(millis), 12, '0') || repeat('0', 20))::uuid AND \
                     d.id < (lpad(to_hex(millis + 1), 12, '0') || repeat('0', 20))::uuid) \
               RETURNING e.id \
             ) SELECT last.occurred_at, last.id, last.tenant_id, \
                      (SELECT count(*) FROM bite) AS looked, (SELECT count(*) FROM gone) AS gone \
             FROM (SELECT 1) AS one LEFT JOIN \
                  (SELECT * FROM bite ORDER BY occurred_at DESC, id DESC, tenant_id DESC LIMIT 1) AS last ON true"
        ))
        .bind::<Timestamptz, _>(at)
        .bind::<SqlUuid, _>(id)
        .bind::<SqlUuid, _>(tenant)
        .bind::<Timestamptz, _>(*before);
        let bite: EventsBite = self.run(async |conn| bite.get_result(conn).await).await?;
        let reached = bite.occurred_at.zip(bite.id).zip(bite.tenant_id).map(|((at, id), tenant)| (at, id, tenant));
        Ok((bite.gone, reached.filter(|_| bite.looked == BITE).map(Stage::Events)))
    }

    /// Forgets a bounded number of deleted webhooks of which no delivery is left (with their health), of finished
    /// recoveries and of jobs that were enqueued again, older than `before`. Returns how many of these are gone.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn leftovers_clean(&mut self, before: OffsetDateTime) -> Result<usize, LedgerError> {
        let statements = [
            format!(
                "WITH gone AS (DELETE FROM webhooks WHERE id = ANY (ARRAY( \
                   SELECT id FROM webhooks AS w WHERE deleted_at < $1 \
                   AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.webhook_id = w.id) LIMIT {WEBHOOKS})) RETURNING id \
                 ), health AS (DELETE FROM webhook_health AS h USING gone WHERE h.webhook_id = gone.id) \
                 SELECT id FROM gone"
            ),
            format!(
                "DELETE FROM recoveries WHERE id = ANY (ARRAY( \
                   SELECT id FROM recoveries WHERE finished_at < $1 LIMIT {BITE}))"
            ),
            format!(
                "DELETE FROM requeued_jobs WHERE delivery_id = ANY (ARRAY( \
                   SELECT delivery_id FROM requeued_jobs WHERE requeued_at < $1 LIMIT {BITE}))"
            ),
        ];
        let mut gone = 0;
        for statement in statements {
            let delete = diesel::sql_query(statement).bind::<Timestamptz, _>(before);
            gone += self.run(async |conn| delete.execute(conn).await).await?;
        }
        Ok(gone)
    }
}

/// Before every event.
const ANCIENT: OffsetDateTime = time::macros::datetime!(-4000-01-01 00:00 UTC);
