//! The leader: who it is, and what it does again and again.

use std::time::Duration;

use domain::error_chain;
use ledger::{Leader, LedgerError};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    reconciler::{Reconciler, Trouble},
    retention::{Retention, tolerate},
    upkeep::Upkeep,
};

/// The longest pause between two tries to take the leader's lock. Once it is free, the ledger is without a leader for
/// no longer. The server closes a connection that asks too rarely.
const LOCK_POLL_INTERVAL: Duration = Duration::from_secs(5);

impl Upkeep {
    /// Leads whenever no other process does, until the stop. The stop drops what is under way, and the lock with it.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.campaign()).await;
    }

    /// A leader that failed asks no sooner than the others: it is not always the server that is ill.
    async fn campaign(&self) {
        loop {
            if let Err(error) = self.wait_and_lead().await {
                tracing::warn!(error = error_chain(&error), "the connection for maintenance failed; trying again");
            }
            sleep(self.interval.min(LOCK_POLL_INTERVAL)).await;
        }
    }

    /// Waits until this process may lead, then leads until the connection fails.
    async fn wait_and_lead(&self) -> Result<(), LedgerError> {
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
            sleep(self.interval.min(LOCK_POLL_INTERVAL)).await;
        }
    }

    async fn lead(&self, mut leader: Leader) -> Result<(), LedgerError> {
        let _leading = self.metrics.lead();
        tracing::info!("this process looks after the ledger now");
        let (mut reconciler, mut retention) = (Reconciler::new(self), Retention::new(self));
        let mut times = interval(self.interval);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            match reconciler.pass(&mut leader).await {
                Ok(result) => self.metrics.passed(result),
                Err(Trouble::Ledger(error)) if error.is_unavailable() => return Err(error),
                Err(trouble) => {
                    reconciler.forget();
                    self.metrics.passed("failed");
                    let error = error_chain(&trouble);
                    tracing::warn!(error, "comparing the ledger with the queues failed; trying again");
                }
            }
            tolerate("moving the cursor of untried deliveries", reconciler.index_untried(&mut leader).await)?;
            let archive_age = tolerate("reading the age of the archive", leader.archive_age().await)?.flatten();
            self.metrics.archive_age.set(archive_age.unwrap_or_default());
            self.notify_failing(&mut leader).await?;
            retention.step(&mut leader).await?;
        }
    }

    /// Adds the notices about webhooks that have been failing for long.
    ///
    /// # Errors
    /// When the database is away. Other failures are logged and tried again.
    async fn notify_failing(&self, leader: &mut Leader) -> Result<(), LedgerError> {
        let notified = tolerate("looking for failing webhooks", leader.failing_notify(&self.failing).await)?;
        if let Some(webhooks @ 1..) = notified {
            tracing::info!(webhooks, "webhooks have been failing for long: their administrators are notified");
        }
        Ok(())
    }
}
