//! Deliveries that wait, for lost-job detection and for the rebuild of queues that the broker lost.

use std::collections::HashSet;

use diesel::{
    QueryableByName,
    sql_types::{Array, Bool, Nullable, SmallInt, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, Job, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    hot::held_jobs::{Held, HoldJobs},
    upkeep::leader::Leader,
};

/// A delivery that waits for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The job of the attempt.
    pub job: Job,
    /// When the attempt is due.
    pub due: OffsetDateTime,
    /// Its webhook.
    pub webhook: WebhookId,
    /// Whether the webhook takes deliveries. If not, the job is to be held, not enqueued.
    pub is_active: bool,
}

/// A chunk of the ledger, searched for deliveries that wait, or for overdue ones that have lost their jobs.
#[derive(Clone, Debug, Default)]
pub struct WaitingChunk {
    /// Those that were found.
    pub found: Vec<Waiting>,
    /// When the most overdue delivery was due, whether or not its job is lost, if overdue ones were searched for.
    pub earliest_due: Option<OffsetDateTime>,
    /// The last id that was looked at; `None` when the chunk was the last one.
    pub cursor: Option<Uuid>,
}

/// Which overdue deliveries have lost their jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBefore {
    /// Those that were due before this, and still wait.
    pub due: OffsetDateTime,
    /// The same for those with attempts: their jobs may be late on the retry queues.
    pub retry_due: OffsetDateTime,
    /// When that was found out. Jobs that were enqueued again shortly before, or since, are left alone.
    pub judged_at: OffsetDateTime,
}

/// The end of the chunk, and a delivery if one was found.
#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    cursor: Option<Uuid>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    earliest_due: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    attempts: Option<i16>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    due: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    webhook_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Bool>)]
    is_active: Option<bool>,
}

const REMEMBER: &str = "INSERT INTO requeued_jobs (delivery_id, attempt, requeued_at) \
     SELECT delivery_id, attempt, now() FROM unnest($1::uuid[], $2::smallint[]) AS job(delivery_id, attempt) \
     ON CONFLICT (delivery_id) DO UPDATE SET attempt = excluded.attempt, requeued_at = excluded.requeued_at, \
        times = CASE WHEN requeued_jobs.attempt = excluded.attempt THEN least(requeued_jobs.times + 1, 100) ELSE 1 END";

impl Leader {
    /// Searches the next `rows` deliveries after an id for those that wait with no job certainly published since
    /// `since`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn waiting_find(
        &mut self,
        after: Uuid,
        rows: u32,
        since: OffsetDateTime,
    ) -> Result<WaitingChunk, LedgerError> {
        let find = format!(concat!(include_str!("waiting.sql"), include_str!("find_waiting.sql")), rows = rows);
        let find = diesel::sql_query(find).bind::<SqlUuid, _>(after).bind::<Timestamptz, _>(since);
        Ok(WaitingChunk::of(self.run(async |conn| find.load(conn).await).await?))
    }

    /// Searches the next `rows` deliveries after an id for those that were due before `since`. Returns the ones that
    /// have lost their jobs: none without `lost`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn overdue_find(
        &mut self,
        after: Uuid,
        rows: u32,
        since: OffsetDateTime,
        lost: Option<LostBefore>,
    ) -> Result<WaitingChunk, LedgerError> {
        let find = format!(concat!(include_str!("waiting.sql"), include_str!("find_overdue.sql")), rows = rows);
        let find = diesel::sql_query(find)
            .bind::<SqlUuid, _>(after)
            .bind::<Timestamptz, _>(since)
            .bind::<Nullable<Timestamptz>, _>(lost.map(|lost| lost.due))
            .bind::<Nullable<Timestamptz>, _>(lost.map(|lost| lost.judged_at))
            .bind::<Nullable<Timestamptz>, _>(lost.map(|lost| lost.retry_due));
        Ok(WaitingChunk::of(self.run(async |conn| find.load(conn).await).await?))
    }

    /// Remembers that jobs were enqueued again.
    ///
    /// # Errors
    /// When the database does not answer. The jobs may be enqueued once more then.
    pub async fn requeued_remember(&mut self, jobs: &[Job]) -> Result<(), LedgerError> {
        let (ids, attempts) = columns(jobs);
        let remember = diesel::sql_query(REMEMBER).bind::<Array<SqlUuid>, _>(ids).bind::<Array<SmallInt>, _>(attempts);
        self.run(async |conn| remember.execute(conn).await.map(|_| ())).await
    }

    /// Holds the jobs of deliveries whose webhooks are paused. Returns the deliveries whose webhooks are active by now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn jobs_hold(&mut self, paused: Vec<Waiting>) -> Result<Vec<Waiting>, LedgerError> {
        if paused.is_empty() {
            return Ok(paused);
        }
        let jobs = paused.iter();
        let jobs = jobs.map(|one| Held {
            webhook: one.webhook,
            delivery: one.job.delivery,
            handed_out: 0,
            is_again: false,
            waking: None,
        });
        let statement = HoldJobs::of(&jobs.collect::<Vec<_>>());
        let held: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        let held: HashSet<Uuid> = held.into_iter().map(|(id,)| id).collect();
        Ok(paused.into_iter().filter(|waiting| !held.contains(&waiting.job.delivery.as_uuid())).collect())
    }
}

impl WaitingChunk {
    /// Every row has the same end of the chunk.
    fn of(rows: Vec<Row>) -> Self {
        let ends = rows.as_slice().first().map(|row| (row.cursor, row.earliest_due));
        let (cursor, earliest_due) = ends.unwrap_or_default();
        Self { found: rows.into_iter().filter_map(Row::read).collect(), earliest_due, cursor }
    }
}

impl Row {
    fn read(self) -> Option<Waiting> {
        let attempt = u16::try_from(self.attempts?).unwrap_or_default() + 1;
        let job = Job { delivery: DeliveryId::from(self.id?), attempt };
        Some(Waiting { job, due: self.due?, webhook: self.webhook_id?.into(), is_active: self.is_active? })
    }
}

fn columns(jobs: &[Job]) -> (Vec<Uuid>, Vec<i16>) {
    let attempt = |job: &Job| i16::try_from(job.attempt).unwrap_or(i16::MAX);
    jobs.iter().map(|job| (job.delivery.as_uuid(), attempt(job))).unzip()
}
