//! What one ingest at a time does beside its work, however many run. It makes sure that what waits has its job on the
//! queues, and that the ledger keeps what it should and nothing more. It works in chunks, over one connection of its
//! own, off the hot path.

mod lost_jobs;
mod metrics;
mod pace;
mod rebuild;
mod reconciler;
mod requeue;
mod retention;
mod slow_lane;
mod walk;

use std::time::Duration;

use broker::{Broker, BrokerError, Unconfirmed};
use domain::RetrySchedule;
use ledger::{Leader, Ledger, LedgerError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub(crate) use self::metrics::Metrics;
use self::{reconciler::Reconciler, retention::Retention};

/// The longest pause between two tries to take the leader's lock. Once it is free, the ledger is without a leader for
/// no longer. The server closes a connection that asks too rarely.
const ASK: Duration = Duration::from_secs(5);

pub(crate) struct Maintenance {
    pub(crate) ledger: Ledger,
    pub(crate) broker: Broker,
    pub(crate) schedule: RetrySchedule,
    pub(crate) interval: Duration,
    pub(crate) grace: Duration,
    pub(crate) keep: Duration,
    pub(crate) metrics: Metrics,
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

impl Maintenance {
    /// Leads whenever no other process does, until the stop. The stop drops what is under way, and the lock with it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.stand_again_and_again() => {}
        }
    }

    async fn stand_again_and_again(&self) {
        loop {
            if let Err(error) = self.stand().await {
                let error: &(dyn std::error::Error + 'static) = &error;
                tracing::warn!(error, "the connection for maintenance failed; trying again");
            }
            tokio::time::sleep(self.interval.min(ASK)).await;
        }
    }

    /// Waits until this process may lead, then leads until the connection fails.
    async fn stand(&self) -> Result<(), LedgerError> {
        let mut candidate = self.ledger.candidate().await?;
        loop {
            candidate = match candidate.lead().await? {
                Ok(leader) => {
                    let lost = leader.lost();
                    return tokio::select! {
                        ended = self.lead(leader) => ended,
                        () = lost => Err(LedgerError::Lost),
                    };
                }
                Err(again) => again,
            };
            tokio::time::sleep(self.interval.min(ASK)).await;
        }
    }

    async fn lead(&self, mut leader: Leader) -> Result<(), LedgerError> {
        let _leading = self.metrics.lead();
        tracing::info!("this process looks after the ledger now");
        let mut reconciler = Reconciler::new(&self.broker, &self.schedule, (self.interval, self.grace), &self.metrics);
        let mut retention = Retention::new(&self.ledger, (self.interval, self.keep), &self.metrics);
        let mut times = tokio::time::interval(self.interval);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            match reconciler.pass(&mut leader).await {
                Ok(result) => self.metrics.passed(result),
                Err(Trouble::Ledger(error)) if error.is_unavailable() => return Err(error),
                Err(trouble) => {
                    reconciler.forget();
                    self.metrics.passed("failed");
                    let error: &(dyn std::error::Error + 'static) = &trouble;
                    tracing::warn!(error, "comparing the ledger with the queues failed; trying again");
                }
            }
            retention.step(&mut leader).await?;
        }
    }
}
