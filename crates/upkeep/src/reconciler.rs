//! Compares what waits in the ledger with what is on the queues.

use std::time::Duration;

use broker::{BrokerError, Presence};
use ledger::{Generation, Leader, LedgerError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{search::Search, upkeep::Upkeep, working_time::WorkingTime};

/// With more ready messages in the bulk lane, no job is enqueued again there.
const FULL: u32 = 10_000;
/// The longest pause between two looks in the time that counts, in intervals (or seconds, if these are shorter).
const PAUSE: u32 = 5;

/// What a leader remembers from one pass to the next. A new leader begins with nothing.
pub(crate) struct Reconciler<'a> {
    pub(crate) upkeep: &'a Upkeep,
    working_time: WorkingTime,
    pub(crate) search: Search,
    is_doubtful: bool,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

/// Whether the broker still has what was on its disk.
enum BrokerData {
    Kept,
    /// The ledger knows no generation to compare it with.
    NotKnown,
    /// It looks lost. Another look will tell.
    Doubtful,
    /// It is lost, or was, and the rebuild is not finished.
    Lost,
}

impl<'a> Reconciler<'a> {
    pub(crate) fn new(upkeep: &'a Upkeep) -> Self {
        Self { upkeep, working_time: WorkingTime::default(), search: Search::default(), is_doubtful: false }
    }

    /// Begins the time that counts for lost jobs anew. While the broker is unavailable, dispatchers receive no jobs.
    pub(crate) fn forget(&mut self) {
        self.working_time = WorkingTime::default();
    }

    /// Does one pass. Returns its result, for the metrics.
    pub(crate) async fn pass(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let known = leader.generation().await?;
        match self.broker_data(known).await? {
            BrokerData::Kept => {}
            BrokerData::Doubtful => {
                self.forget();
                return Ok("doubtful");
            }
            BrokerData::NotKnown => {
                self.adopt(leader, known).await?;
                return Ok("adopted");
            }
            BrokerData::Lost => {
                self.forget();
                return self.rebuild(leader, known).await;
            }
        }
        self.find_lost(leader, known.indexed_before).await
    }

    async fn broker_data(&mut self, known: Generation) -> Result<BrokerData, Trouble> {
        let Some(id) = known.id else { return Ok(BrokerData::NotKnown) };
        if known.rebuilding.is_some() {
            return Ok(BrokerData::Lost);
        }
        let was_doubtful = std::mem::take(&mut self.is_doubtful);
        Ok(match self.upkeep.broker.presence(&self.upkeep.broker.names().generation(id)).await? {
            Presence::Exists => BrokerData::Kept,
            Presence::Gone if was_doubtful => BrokerData::Lost,
            Presence::Gone => {
                self.is_doubtful = true;
                BrokerData::Doubtful
            }
            Presence::Unknown => {
                tracing::warn!("the broker seems to have lost its disk, but too few of its nodes answer to be sure");
                BrokerData::Doubtful
            }
        })
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
        let (main, bulk) = (broker.lane(&names.main()).await?, broker.lane(&names.bulk()).await?);
        let slow = broker.lane(&names.slow()).await?;
        let [main, bulk, slow] = [main, bulk, slow].map(Option::unwrap_or_default);
        // A queue whose leader is silent for a moment shows no consumer either. The time begins anew if that lasts.
        if [main, bulk, slow].iter().all(|lane| lane.consumers > 0) {
            self.working_time.note(now, main.ready, self.upkeep.interval.max(Duration::from_secs(1)) * PAUSE);
        }
        Ok(bulk.ready <= FULL)
    }
}
