//! Compares what waits in the ledger with what is on the queues.

use std::time::{Duration, Instant};

use broker::{Broker, BrokerError, Presence, Unconfirmed};
use domain::RetrySchedule;
use ledger::{Generation, Leader, LedgerError};

use crate::{
    lost_jobs::{Look, LostJobs},
    metrics::Metrics,
    walk::Walk,
};

/// What a leader remembers from one pass to the next. A new leader begins with nothing.
pub(crate) struct Reconciler<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) schedule: &'a RetrySchedule,
    pub(crate) metrics: &'a Metrics,
    pub(crate) interval: Duration,
    pub(crate) grace: Duration,
    lost_jobs: LostJobs,
    /// The walk through the deliveries made lately, and the one through all older ones.
    pub(crate) lately: Walk,
    pub(crate) older: Walk,
    is_doubtful: bool,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Publish(#[from] Unconfirmed),
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
    pub(crate) fn new(
        broker: &'a Broker,
        schedule: &'a RetrySchedule,
        (interval, grace): (Duration, Duration),
        metrics: &'a Metrics,
    ) -> Self {
        let lost_jobs = LostJobs::default();
        let (lately, older, is_doubtful) = (Walk::default(), Walk::default(), false);
        Self { broker, schedule, metrics, interval, grace, lost_jobs, lately, older, is_doubtful }
    }

    /// Forgets what was seen of the queues. While the broker is away, dispatchers take no jobs.
    pub(crate) fn forget(&mut self) {
        self.lost_jobs = LostJobs::default();
        for walk in [&mut self.lately, &mut self.older] {
            walk.acquit();
        }
    }

    /// Does one pass. Returns its result, for the metrics.
    pub(crate) async fn pass(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let known = leader.generation().await?;
        match self.broker_data(known).await? {
            BrokerData::Kept => leader.generation_verify().await?,
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
        self.find_lost(leader).await
    }

    async fn broker_data(&mut self, known: Generation) -> Result<BrokerData, Trouble> {
        let Some(id) = known.id else { return Ok(BrokerData::NotKnown) };
        if known.rebuilding.is_some() {
            return Ok(BrokerData::Lost);
        }
        let was_doubtful = std::mem::take(&mut self.is_doubtful);
        Ok(match self.broker.presence(&self.broker.names().generation(id)).await? {
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

    async fn find_lost(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let look = self.look(leader).await?;
        let slack = self.schedule.gaps().last().copied().map_or(Duration::ZERO, RetrySchedule::slack);
        if let Some(lost) = self.lost_jobs.lost_before(look, self.grace, slack) {
            for walk in [&mut self.lately, &mut self.older] {
                walk.judge(lost);
            }
        }
        let jobs = self.walk(leader, look.time).await?;
        let earliest = self.lately.earliest_due().into_iter().chain(self.older.earliest_due()).min();
        let overdue = earliest.map(|due| Duration::try_from(look.time - due).unwrap_or_default()).unwrap_or_default();
        self.metrics.oldest_overdue(overdue);
        if jobs > 0 {
            tracing::warn!(jobs, "overdue deliveries had lost their jobs: they are enqueued again");
            return Ok("acted");
        }
        let is_behind = overdue >= self.grace * 2 && self.lost_jobs.is_behind(look.at, self.grace);
        Ok(if is_behind { "behind" } else { "done" })
    }

    /// Looks at the queues of all lanes.
    async fn look(&mut self, leader: &mut Leader) -> Result<Look, Trouble> {
        let names = self.broker.names();
        // If all are empty, every job published before the first look is taken by the time of the last.
        let (time, mut ready) = (leader.now().await?, 0_u32);
        for queue in [names.slow(), names.main(), names.bulk()] {
            ready = ready.saturating_add(self.broker.depth_proven(&queue).await?.unwrap_or(0));
        }
        let look = Look { ready, at: Instant::now(), time };
        self.lost_jobs.look(look, self.grace);
        Ok(look)
    }
}
