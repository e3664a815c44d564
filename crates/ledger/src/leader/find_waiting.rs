//! Deliveries that wait, for lost-job detection and for the rebuild of queues that the broker lost.

use diesel_async::RunQueryDsl;
use domain::{DeliveryId, Job, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    delivery::hold::{HoldJobs, JobToHold},
    error::LedgerError,
    leader::Leader,
    statement::{rows, sql},
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

/// Waiting deliveries, in an order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Deliveries with a due time, by that time.
    Due,
    /// Deliveries that were never attempted and have no due time but their creation, by their ids.
    Untried,
    /// Deliveries that were never attempted and have no due time but their creation, the newest id first.
    UntriedBackwards,
}

/// A delivery's place in a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPosition {
    /// The delivery's due time. It counts only for deliveries with a due time.
    pub due: OffsetDateTime,
    /// The delivery.
    pub id: Uuid,
}

impl StreamPosition {
    /// The place after which the delivery is the next one.
    #[must_use]
    pub const fn before(self) -> Self {
        Self { id: Uuid::from_u128(self.id.as_u128().saturating_sub(1)), ..self }
    }
}

/// A chunk of a stream, searched for deliveries that wait, or for overdue ones that have lost their jobs.
#[derive(Clone, Debug, Default)]
pub struct WaitingChunk {
    /// Those that were found.
    pub found: Vec<Waiting>,
    /// The first delivery that was looked at, if overdue ones were searched for.
    pub first: Option<StreamPosition>,
    /// The most overdue delivery, whether or not its job is lost, if overdue ones were searched for.
    pub oldest: Option<StreamPosition>,
    /// The last delivery that was looked at; `None` when the chunk was the last one.
    pub last: Option<StreamPosition>,
}

/// The ends of the chunk, its most overdue delivery, and a delivery if one was found.
struct WaitingRow {
    first_due: Option<OffsetDateTime>,
    first_id: Option<Uuid>,
    last_due: Option<OffsetDateTime>,
    last_id: Option<Uuid>,
    oldest_due: Option<OffsetDateTime>,
    oldest_id: Option<Uuid>,
    id: Option<Uuid>,
    attempts: Option<i16>,
    due: Option<OffsetDateTime>,
    webhook_id: Option<Uuid>,
    is_active: Option<bool>,
}

rows! { WaitingRow {
    first_due, first_id, last_due, last_id, oldest_due, oldest_id, id, attempts, due, webhook_id, is_active,
} }

const RECORD_REQUEUED: &str = "INSERT INTO requeued_jobs (delivery_id, attempt, requeued_at) \
     SELECT delivery_id, attempt, now() FROM unnest($1::uuid[], $2::smallint[]) AS job(delivery_id, attempt) \
     ON CONFLICT (delivery_id) DO UPDATE SET attempt = excluded.attempt, requeued_at = excluded.requeued_at, \
        requeue_count = CASE WHEN requeued_jobs.attempt = excluded.attempt THEN least(requeued_jobs.requeue_count + 1, 100) ELSE 1 END";

impl Stream {
    /// The rows of a stream after the place ($1, $2), in its order. `until` is a further condition on the due time.
    fn rows(self, until: &str) -> String {
        // No index names a delivery's state: it would end the in-place updates (HOT) of attempts.
        let untried = |beyond, order| {
            format!(
                "SELECT id, webhook_id, created_at AS due, state = 'pending' AND next_attempt_at IS NULL AS waits \
                 FROM deliveries WHERE id {beyond} $2 ORDER BY id {order}"
            )
        };
        match self {
            Self::Due => format!(
                "SELECT delivery_id AS id, webhook_id, next_attempt_at AS due, true AS waits \
                 FROM unsuccessful_deliveries \
                 WHERE state IN ('pending', 'retrying') AND (next_attempt_at, delivery_id) > ($1, $2){until} \
                 ORDER BY next_attempt_at, delivery_id"
            ),
            Self::Untried => untried(">", "ASC"),
            Self::UntriedBackwards => untried("<", "DESC"),
        }
    }
}

impl Leader {
    /// Searches the next `rows` deliveries of a stream for those that wait with no job certainly published since
    /// `since`.
    pub async fn waiting_find(
        &mut self,
        stream: Stream,
        after: StreamPosition,
        rows: u32,
        since: OffsetDateTime,
    ) -> Result<WaitingChunk, LedgerError> {
        let find = format!(
            concat!(include_str!("waiting.sql"), include_str!("find_waiting.sql")),
            chunk = stream.rows(""),
            rows = rows
        );
        let find = sql(find).bind(after.due).bind(after.id).bind(since);
        Ok(WaitingChunk::of(self.run("waiting_find", async |conn| find.load(conn).await).await?))
    }

    /// Searches the next `rows` deliveries of a stream for overdue ones. Returns up to `limit` that were due before
    /// `lost` and so have lost their jobs: none without `lost`. Those whose jobs were enqueued again lately are left
    /// out.
    pub async fn overdue_find(
        &mut self,
        stream: Stream,
        after: StreamPosition,
        rows: u32,
        (lost, limit): (Option<OffsetDateTime>, u32),
    ) -> Result<WaitingChunk, LedgerError> {
        let find = format!(
            concat!(include_str!("waiting.sql"), include_str!("find_overdue.sql")),
            chunk = stream.rows(" AND next_attempt_at < now()"),
            rows = rows
        );
        let find = sql(find).bind(after.due).bind(after.id).bind(lost).bind(i64::from(limit));
        Ok(WaitingChunk::of(self.run("overdue_find", async |conn| find.load(conn).await).await?))
    }

    /// Remembers that jobs were enqueued again.
    ///
    /// # Errors
    /// When the database does not answer. The jobs may be enqueued once more then.
    pub async fn requeued_record(&mut self, jobs: &[Job]) -> Result<(), LedgerError> {
        let attempt = |job: &Job| i16::try_from(job.attempt).unwrap_or(i16::MAX);
        let (ids, attempts): (Vec<Uuid>, Vec<i16>) =
            jobs.iter().map(|job| (job.delivery.as_uuid(), attempt(job))).unzip();
        let remember = sql(RECORD_REQUEUED).bind(ids).bind(attempts);
        self.run("requeued_record", async |conn| remember.execute(conn).await.map(|_| ())).await
    }

    /// Holds the jobs of deliveries whose webhooks are paused. Returns the deliveries whose webhooks are active by now.
    pub async fn jobs_hold(&mut self, paused: Vec<Waiting>) -> Result<Vec<Waiting>, LedgerError> {
        if paused.is_empty() {
            return Ok(paused);
        }
        let jobs = paused.iter();
        let jobs = jobs.map(|one| JobToHold {
            webhook: one.webhook,
            delivery: one.job.delivery,
            delivery_count: 0,
            is_again: false,
            release: None,
        });
        let statement = HoldJobs::of(&jobs.collect::<Vec<_>>());
        let held = statement.held(self.run("jobs_hold", async |conn| (&statement).load(conn).await).await?);
        Ok(paused.into_iter().zip(held).filter(|(_, is_held)| !is_held).map(|(waiting, _)| waiting).collect())
    }
}

impl WaitingChunk {
    /// Every row has the same ends of the chunk.
    fn of(rows: Vec<WaitingRow>) -> Self {
        let place = |(due, id)| Some(StreamPosition { due: due?, id: id? });
        let [first, last, oldest] = rows.as_slice().first().map_or([None; 3], |row| {
            [(row.first_due, row.first_id), (row.last_due, row.last_id), (row.oldest_due, row.oldest_id)].map(place)
        });
        Self { found: rows.into_iter().filter_map(WaitingRow::read).collect(), first, oldest, last }
    }
}

impl WaitingRow {
    fn read(self) -> Option<Waiting> {
        let attempt = u16::try_from(self.attempts?).unwrap_or_default() + 1;
        let job = Job { delivery: DeliveryId::from(self.id?), attempt };
        Some(Waiting { job, due: self.due?, webhook: self.webhook_id?.into(), is_active: self.is_active? })
    }
}
