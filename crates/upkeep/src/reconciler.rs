//! Compares what waits in the ledger with what is on the queues.

use std::time::Duration;

use broker::BrokerError;
use domain::{BrokerData, Presence};
use ledger::{Leader, LedgerError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{search::Search, upkeep::Upkeep, working_time::WorkingTime};

/// With more ready messages in the bulk lane, no job is enqueued again there.
const MAX_BULK_MESSAGES: u32 = 10_000;
/// The longest pause between two looks in the time that counts, in intervals (or seconds, if these are shorter).
const MAX_PAUSE_INTERVALS: u32 = 5;

/// What a leader remembers from one pass to the next. A new leader begins with nothing.
pub(crate) struct Reconciler<'a> {
    pub(crate) upkeep: &'a Upkeep,
    working_time: WorkingTime,
    pub(crate) search: Search,
    /// The presence of the sentinel in the pass before.
    presence: Presence,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

impl<'a> Reconciler<'a> {
    pub(crate) fn new(upkeep: &'a Upkeep) -> Self {
        Self { upkeep, working_time: WorkingTime::default(), search: Search::default(), presence: Presence::default() }
    }

    /// Begins the time that counts for lost jobs anew. While the broker is unavailable, dispatchers receive no jobs.
    pub(crate) fn forget(&mut self) {
        self.working_time = WorkingTime::default();
    }

    /// Does one pass. Returns its result, for the metrics.
    pub(crate) async fn pass(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let known = leader.generation().await?;
        let Some(sentinel) = known.id else {
            self.adopt(leader, known).await?;
            return Ok("adopted");
        };
        let data = if known.rebuild_id.is_some() { BrokerData::Lost } else { self.broker_data(sentinel).await? };
        match data {
            BrokerData::Kept => self.find_lost(leader, known.indexed_before).await,
            BrokerData::Doubtful => {
                self.forget();
                Ok("doubtful")
            }
            BrokerData::Lost => {
                self.forget();
                // The rebuild declares another sentinel.
                self.presence = Presence::default();
                self.rebuild(leader, known).await
            }
        }
    }

    async fn broker_data(&mut self, sentinel: Uuid) -> Result<BrokerData, Trouble> {
        // A pass that fails has seen nothing.
        let before = std::mem::take(&mut self.presence);
        self.presence = self.upkeep.broker.presence(&self.upkeep.broker.names().generation(sentinel)).await?;
        if self.presence == Presence::Unknown {
            tracing::warn!("the broker seems to have lost its disk, but too few of its nodes answer to be sure");
        }
        Ok(self.presence.after(before))
    }

    async fn find_lost(&mut self, leader: &mut Leader, indexed_before: Uuid) -> Result<&'static str, Trouble> {
        let now = leader.now().await?;
        let has_room = self.look(now).await?;
        let lost = self.working_time.lost_before(now, self.upkeep.grace).filter(|_| has_room);
        let jobs = self.search(leader, now, lost, indexed_before).await?;
        let overdue = self.search.oldest_due().map(|due| (now - due).as_seconds_f64().max(0.0));
        self.upkeep.metrics.oldest_overdue.set(overdue.unwrap_or_default());
        if jobs > 0 {
            tracing::warn!(jobs, "overdue deliveries had lost their jobs: they are enqueued again");
            return Ok("acted");
        }
        Ok("done")
    }

    /// Looks at the queues of all lanes: do dispatchers receive jobs from each? Returns whether the bulk lane has room
    /// for jobs that are enqueued again.
    async fn look(&mut self, now: OffsetDateTime) -> Result<bool, Trouble> {
        let (broker, names) = (&self.upkeep.broker, self.upkeep.broker.names());
        let (main, bulk) = (broker.queue_depth(&names.main()).await?, broker.queue_depth(&names.bulk()).await?);
        let slow = broker.queue_depth(&names.slow()).await?;
        let [main, bulk, slow] = [main, bulk, slow].map(Option::unwrap_or_default);
        // A queue whose leader is silent for a moment shows no consumer either. The time begins anew if that lasts.
        if [main, bulk, slow].iter().all(|lane| lane.consumers > 0) {
            self.working_time.note(
                now,
                main.ready,
                self.upkeep.interval.max(Duration::from_secs(1)) * MAX_PAUSE_INTERVALS,
            );
        }
        Ok(bulk.ready <= MAX_BULK_MESSAGES)
    }
}
