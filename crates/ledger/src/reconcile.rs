//! What waits by the ledger, for the one who makes sure that it has a job on the queues.

use std::{collections::HashSet, time::Duration};

use diesel::{
    QueryableByName,
    sql_types::{Array, BigInt, Bool, Double, SmallInt, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, Job, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{error::LedgerError, leader::Leader};

/// Overdue jobs that one pass may enqueue again.
const MOST: i64 = 1_000;

/// A delivery that waits for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The job of the attempt.
    pub job: Job,
    /// When the attempt is due.
    pub due: OffsetDateTime,
    /// Its webhook.
    pub webhook: WebhookId,
    /// Whether the webhook takes deliveries: otherwise the job is to be held, not enqueued.
    pub is_active: bool,
}

/// Deliveries of a bite of the ledger.
#[derive(Clone, Debug, Default)]
pub struct Bite {
    /// Those that were looked for.
    pub waiting: Vec<Waiting>,
    /// The last id that was looked at; `None` when the bite was the last one.
    pub reached: Option<Uuid>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SmallInt)]
    attempts: i16,
    #[diesel(sql_type = Timestamptz)]
    due: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    webhook_id: Uuid,
    #[diesel(sql_type = Bool)]
    is_active: bool,
}

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

// No index knows the state of a delivery: it would end the updates in place (HOT) that the hot path lives on. So these
// walk along the primary key, in bites.
const END_OF_BITE: &str = "SELECT id FROM deliveries WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1";

/// Waits, with no job that is certain to come: neither promised nor held.
const WAITING: &str = "SELECT d.id, d.attempts, coalesce(d.next_attempt_at, d.created_at) AS due, d.webhook_id, w.is_active \
     FROM deliveries AS d CROSS JOIN LATERAL \
       (SELECT is_active FROM webhooks WHERE id = d.webhook_id AND deleted_at IS NULL LIMIT 1) AS w \
     WHERE d.state IN ('pending', 'retrying') \
       AND NOT EXISTS (SELECT FROM promised_jobs AS p WHERE p.delivery_id = d.id) \
       AND NOT EXISTS (SELECT FROM held_jobs AS h WHERE h.webhook_id = d.webhook_id AND h.delivery_id = d.id)";

/// Its job was not published after the time given, which it is right after it was made or attempted.
const NOT_SINCE: &str = "AND d.created_at < $3 \
       AND NOT EXISTS (SELECT FROM attempts AS a WHERE a.delivery_id = d.id AND a.attempt = d.attempts \
                       AND a.started_at + a.duration_us * interval '1 microsecond' >= $3)";

/// Its job ought to have been done at the time given, and is neither in the slow lane nor among the dead ones.
const OVERDUE: &str = "AND w.is_active AND coalesce(d.next_attempt_at, d.created_at) < $3 \
       AND NOT EXISTS (SELECT FROM slow_webhooks AS s WHERE s.webhook_id = d.webhook_id) \
       AND NOT EXISTS (SELECT FROM suspect_jobs AS s WHERE s.delivery_id = d.id AND s.parked_as IS NOT NULL)";

const NOT_LATELY: &str = "AND NOT EXISTS (SELECT FROM requeued_jobs AS r WHERE r.delivery_id = d.id AND r.attempt = d.attempts + 1 \
                       AND r.requeued_at + interval '1 hour' * (1 << least(r.times - 1, 5)) > $2)";

const REMEMBER: &str = "INSERT INTO requeued_jobs (delivery_id, attempt, requeued_at) \
     SELECT delivery_id, attempt, $3 FROM unnest($1::uuid[], $2::smallint[]) AS job(delivery_id, attempt) \
     ON CONFLICT (delivery_id) DO UPDATE SET attempt = excluded.attempt, requeued_at = excluded.requeued_at, \
        times = CASE WHEN requeued_jobs.attempt = excluded.attempt THEN least(requeued_jobs.times + 1, 100) ELSE 1 END";

const SLOW_FORGET: &str = "DELETE FROM slow_webhooks WHERE stamped_at < now() - $1 * interval '1 second'";
const SLOW_FORGET_WHILE_TAKEN: &str = "DELETE FROM slow_webhooks WHERE stamped_at < now() - $1 * interval '1 second' \
     AND EXISTS (SELECT FROM slow_webhooks WHERE stamped_at > now() - interval '1 minute')";

impl Leader {
    /// Deliveries that wait, among the next `rows` after an id, and whose job was not certainly published since `since`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn waiting_find(&mut self, after: Uuid, rows: u32, since: OffsetDateTime) -> Result<Bite, LedgerError> {
        self.bite(after, rows, NOT_SINCE, since).await
    }

    /// Deliveries that are overdue since before `since`, among the next `rows` after an id; a thousand at most.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn overdue_find(&mut self, after: Uuid, rows: u32, since: OffsetDateTime) -> Result<Bite, LedgerError> {
        self.bite(after, rows, OVERDUE, since).await
    }

    async fn bite(&mut self, after: Uuid, rows: u32, which: &str, since: OffsetDateTime) -> Result<Bite, LedgerError> {
        let ends = diesel::sql_query(END_OF_BITE).bind::<SqlUuid, _>(after).bind::<BigInt, _>(i64::from(rows) - 1);
        let ends: Vec<Id> = self.run(async |conn| ends.load(conn).await).await?;
        let reached = ends.into_iter().next().map(|row| row.id);
        let find = diesel::sql_query(format!("{WAITING} AND d.id > $1 AND d.id <= $2 {which} ORDER BY d.id"))
            .bind::<SqlUuid, _>(after)
            .bind::<SqlUuid, _>(reached.unwrap_or(Uuid::max()))
            .bind::<Timestamptz, _>(since);
        let found: Vec<Row> = self.run(async |conn| find.load(conn).await).await?;
        Ok(Bite { waiting: found.into_iter().map(Row::read).collect(), reached })
    }

    /// Those of the given jobs that are overdue still and were not enqueued again lately; a thousand at most.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn overdue_check(
        &mut self,
        jobs: &[Job],
        now: OffsetDateTime,
        grace: Duration,
    ) -> Result<Vec<Waiting>, LedgerError> {
        let (ids, _) = columns(jobs);
        let check = format!("{WAITING} AND d.id = ANY ($1) {OVERDUE} {NOT_LATELY} ORDER BY due LIMIT {MOST}");
        let check = diesel::sql_query(check)
            .bind::<Array<SqlUuid>, _>(ids)
            .bind::<Timestamptz, _>(now)
            .bind::<Timestamptz, _>(now - grace);
        let found: Vec<Row> = self.run(async |conn| check.load(conn).await).await?;
        let jobs: HashSet<&Job> = jobs.iter().collect();
        Ok(found.into_iter().map(Row::read).filter(|waiting| jobs.contains(&waiting.job)).collect())
    }

    /// Remembers that jobs were enqueued again.
    ///
    /// # Errors
    /// When the database does not answer; they may be enqueued once more then.
    pub async fn requeued_remember(&mut self, jobs: &[Job], now: OffsetDateTime) -> Result<(), LedgerError> {
        let (ids, attempts) = columns(jobs);
        let remember = diesel::sql_query(REMEMBER)
            .bind::<Array<SqlUuid>, _>(ids)
            .bind::<Array<SmallInt>, _>(attempts)
            .bind::<Timestamptz, _>(now);
        self.run(async |conn| remember.execute(conn).await.map(|_| ())).await
    }

    /// Forgets that webhooks had jobs in the slow lane, once its queue was seen empty: those whose stamp was not renewed for
    /// `age`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn slow_forget(&mut self, age: Duration) -> Result<(), LedgerError> {
        self.forget(SLOW_FORGET, age).await
    }

    /// The same while its queue is not empty: nothing happens unless a stamp was renewed in the last minute, as nobody takes
    /// anything from there then.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn slow_forget_while_taken(&mut self, age: Duration) -> Result<(), LedgerError> {
        self.forget(SLOW_FORGET_WHILE_TAKEN, age).await
    }

    async fn forget(&mut self, forget: &str, age: Duration) -> Result<(), LedgerError> {
        let forget = diesel::sql_query(forget).bind::<Double, _>(age.as_secs_f64());
        self.run(async |conn| forget.execute(conn).await.map(|_| ())).await
    }
}

impl Row {
    fn read(self) -> Waiting {
        let attempt = u16::try_from(self.attempts).unwrap_or_default() + 1;
        let job = Job { delivery: DeliveryId::from(self.id), attempt };
        Waiting { job, due: self.due, webhook: self.webhook_id.into(), is_active: self.is_active }
    }
}

fn columns(jobs: &[Job]) -> (Vec<Uuid>, Vec<i16>) {
    let attempt = |job: &Job| i16::try_from(job.attempt).unwrap_or(i16::MAX);
    jobs.iter().map(|job| (job.delivery.as_uuid(), attempt(job))).unzip()
}
