//! The rebuild (recovery from data loss): after the broker has lost its disk, every delivery that waits gets its job
//! again.

use std::time::{Duration, Instant};

use broker::{Backoff, BrokerError, Outgoing, PublishError, Publisher};
use domain::{Presence, error_chain};
use ledger::{Generation, Leader, RebuildCursor, Stream, StreamPosition, Waiting};
use time::OffsetDateTime;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    reconciler::{Reconciler, Trouble},
    throttle::pause,
};

/// Rows of the ledger in a chunk: about a tenth of a second when all of them wait.
const CHUNK_ROWS: u32 = 10_000;
/// Jobs that are published at a time.
const BATCH_JOBS: usize = 1_000;
/// The interval at which the leader uses its connection while it waits for the broker.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A rebuild under way: the time since which published messages are known to exist, and what was done.
struct Rebuild {
    since: OffsetDateTime,
    publisher: Publisher,
    jobs: usize,
    held: usize,
}

impl Reconciler<'_> {
    /// Trusts what the broker has while no generation is known. A rebuild would double every job on the queues.
    pub(crate) async fn adopt(&self, leader: &mut Leader, known: Generation) -> Result<(), Trouble> {
        if self.begin(leader, known).await?.is_some() {
            leader.rebuild_finish().await?;
        }
        Ok(())
    }

    /// Publishes the job of every delivery that waits, in chunks: in turn one of deliveries with a due time, the
    /// most overdue first, and one of untried deliveries, the newest first, to the cursor (`untried.rs`). First declares the
    /// sentinel of the new generation. While that queue exists, so do the jobs published since, and a new leader
    /// continues at the cursor. If it is gone again, the rebuild begins anew.
    pub(crate) async fn rebuild(&self, leader: &mut Leader, known: Generation) -> Result<&'static str, Trouble> {
        let Some((since, mut cursor)) = self.begin(leader, known).await? else { return Ok("doubtful") };
        tracing::warn!(?cursor, "the broker lost its disk: the jobs of all deliveries that wait come back");
        let stop = CancellationToken::new();
        let _close = stop.clone().drop_guard();
        let mut rebuild = Rebuild { since, publisher: self.upkeep.broker.publisher(stop), jobs: 0, held: 0 };
        while cursor.due().is_some() || cursor.untried().is_some() {
            for (stream, after) in [cursor.due(), cursor.untried()].into_iter().flatten() {
                let last = self.enqueue_chunk(leader, &mut rebuild, stream, after).await?;
                cursor.advance(stream, last, known.indexed_before);
                leader.rebuild_advance(since, &cursor).await?;
            }
        }
        let Rebuild { jobs, held, .. } = rebuild;
        let planned = leader.generation().await?.rebuild_id.unwrap_or_default();
        match self.upkeep.broker.presence(&self.upkeep.broker.names().generation(planned)).await? {
            Presence::Exists => {}
            Presence::Unknown => return Ok("doubtful"),
            Presence::Gone => {
                tracing::warn!("the broker lost its disk once more: the rebuild begins anew");
                return Ok("lost_again");
            }
        }
        leader.rebuild_finish().await?;
        tracing::warn!(jobs, held, "the broker lost its disk: every delivery that waits has its job again");
        Ok("rebuilt")
    }

    /// Searches a chunk, and publishes the jobs that it finds, or holds them. Returns the chunk's end.
    async fn enqueue_chunk(
        &self,
        leader: &mut Leader,
        rebuild: &mut Rebuild,
        stream: Stream,
        after: StreamPosition,
    ) -> Result<Option<StreamPosition>, Trouble> {
        let began = Instant::now();
        let chunk = leader.waiting_find(stream, after, CHUNK_ROWS, rebuild.since).await?;
        pause(began.elapsed()).await;
        let (mut active, paused): (Vec<_>, Vec<_>) = chunk.found.into_iter().partition(|one| one.is_active);
        rebuild.held += paused.len();
        let activated = leader.jobs_hold(paused).await?;
        rebuild.held -= activated.len();
        active.extend(activated);
        self.enqueue(leader, &rebuild.publisher, &active).await?;
        rebuild.jobs += active.len();
        Ok(chunk.last)
    }

    /// Returns the time since which published messages are known to exist, and where to continue. `None` while nobody
    /// can tell whether the queue of the rebuild under way is there.
    async fn begin(
        &self,
        leader: &mut Leader,
        known: Generation,
    ) -> Result<Option<(OffsetDateTime, RebuildCursor)>, Trouble> {
        let id = known.rebuild_id.unwrap_or_else(Uuid::new_v4);
        let queue = self.upkeep.broker.names().generation(id);
        if let Some(since) = known.rebuild_began_at {
            match self.upkeep.broker.presence(&queue).await? {
                Presence::Exists => return Ok(Some((since, known.rebuild))),
                Presence::Unknown => return Ok(None),
                Presence::Gone => {}
            }
        }
        // From here on, the cursors of an earlier rebuild do not count.
        leader.rebuild_plan(id).await?;
        self.upkeep.broker.sentinel_declare(&queue).await?;
        // The database's time, after the queue is declared: jobs of what commits later are published to this
        // generation.
        let since = leader.now().await?;
        leader.rebuild_advance(since, &RebuildCursor::FIRST).await?;
        Ok(Some((since, RebuildCursor::FIRST)))
    }

    /// Publishes jobs. Tries refused ones again, without the others, until the queue takes them. To begin the chunk
    /// anew would publish all of it once more.
    async fn enqueue(&self, leader: &mut Leader, publisher: &Publisher, waiting: &[Waiting]) -> Result<(), Trouble> {
        let mut refused = self.enqueue_once(leader, publisher, waiting).await?;
        let mut backoff = Backoff::default();
        while !refused.is_empty() {
            backoff.pause().await;
            let still_refused = self.enqueue_once(leader, publisher, &refused).await?;
            if still_refused.len() < refused.len() {
                backoff = Backoff::default();
            }
            refused = still_refused;
        }
        Ok(())
    }

    /// Publishes each job once. Returns those that were refused or not confirmed in time.
    async fn enqueue_once(
        &self,
        leader: &mut Leader,
        publisher: &Publisher,
        waiting: &[Waiting],
    ) -> Result<Vec<Waiting>, Trouble> {
        let (names, mut refused) = (self.upkeep.broker.names(), Vec::new());
        for some in waiting.chunks(BATCH_JOBS) {
            let now = leader.now().await?;
            let later = |one: &Waiting| names.job_at(one.job, one.due, now, &self.upkeep.schedule);
            let (due_now, due_later): (Vec<_>, Vec<_>) = some.iter().copied().partition(|one| one.due <= now);
            let delayed = due_later.chunks(1).map(|one| (later(&one[0]), one));
            let (messages, own): (Vec<Outgoing>, Vec<_>) =
                names.messages_due(&due_now, |one| one.job).into_iter().chain(delayed).unzip();
            let left = match as_leader(leader, publisher.publish_bulk(&messages)).await? {
                Ok(()) => Vec::new(),
                Err(error) if matches!(*error.error, PublishError::Refused | PublishError::Timeout(_)) => {
                    tracing::warn!(error = error_chain(&error), "enqueueing jobs failed; trying again");
                    error.places
                }
                Err(error) => return Err(BrokerError::from(error).into()),
            };
            let left: Vec<_> =
                left.into_iter().filter_map(|place| own.get(place)).copied().flatten().copied().collect();
            self.upkeep.metrics.enqueued("broker_lost", some.len() - left.len());
            refused.extend(left);
        }
        Ok(refused)
    }
}

/// Does a step that may take long. Meanwhile asks now and then over the leader's connection, to end if that is lost.
async fn as_leader<T>(leader: &mut Leader, step: impl Future<Output = T>) -> Result<T, Trouble> {
    let mut step = std::pin::pin!(step);
    loop {
        match timeout(POLL_INTERVAL, &mut step).await {
            Ok(done) => return Ok(done),
            Err(_) => leader.generation().await?,
        };
    }
}
