//! What goes on without a request: promises that their promiser did not keep, and recoveries. Any number of replicas do
//! it side by side.

use std::{error::Error, time::Duration};

use ledger::{Ledger, LedgerError, Promised};
use time::OffsetDateTime;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::outbox::Outbox;

/// How often it looks by itself.
const LOOK: Duration = Duration::from_secs(1);
/// Promises per step.
const PROMISES: u16 = 200;
/// Deliveries per step of a recovery, at most.
const RECOVERED: u16 = 100;

pub(crate) struct Keeper {
    pub(crate) ledger: Ledger,
    pub(crate) outbox: Outbox,
    /// Deliveries of one recovery per second.
    pub(crate) recover_per_second: u16,
    /// How long history is kept: what is older is not sent again.
    pub(crate) keep: Duration,
}

impl Keeper {
    /// Works until `shutdown`, then ends the steps under way, if they end within `deadline`.
    pub(crate) async fn run(self, shutdown: &CancellationToken, deadline: Duration) {
        let working = async { tokio::join!(self.keep_promises(shutdown), self.recover(shutdown)) };
        let overdue = async {
            shutdown.cancelled().await;
            sleep(deadline).await;
        };
        tokio::select! {
            _ = working => {}
            () = overdue => tracing::warn!("shutdown.deadline has passed: other processes keep the promises"),
        }
    }

    async fn keep_promises(&self, shutdown: &CancellationToken) {
        let mut health = Health::default();
        while woken(&self.outbox.promises, shutdown).await {
            while self.outbox.is_open() && !shutdown.is_cancelled() {
                let leased = self.ledger.promises_lease(OffsetDateTime::now_utc(), PROMISES).await;
                let Some(promised) = health.of("promises", leased).filter(|promised| !promised.is_empty()) else {
                    break;
                };
                self.publish(&promised).await;
            }
        }
    }

    async fn recover(&self, shutdown: &CancellationToken) {
        let most = self.recover_per_second.min(RECOVERED);
        let pause = Duration::from_secs_f64(f64::from(most) / f64::from(self.recover_per_second));
        let mut health = Health::default();
        while woken(&self.outbox.recoveries, shutdown).await {
            while self.outbox.is_open() && !shutdown.is_cancelled() {
                let step = self.ledger.recovery_step(most, pause, self.keep).await;
                let Some(promised) = health.of("recoveries", step).flatten() else { break };
                self.publish(&promised).await;
                let _ = timeout(pause, shutdown.cancelled()).await;
            }
        }
    }

    /// What cannot be published now is published when its lease ends.
    async fn publish(&self, promised: &Promised) {
        if let Err(error) = self.outbox.publish(promised).await {
            tracing::warn!(error = &error as &dyn Error, "promised jobs could not be published; they will be later");
        }
    }
}

/// Waits for the next look. `false` at the shutdown.
async fn woken(poke: &Notify, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => false,
        () = poke.notified() => true,
        () = sleep(LOOK) => true,
    }
}

/// Logs an outage of the database once, not at every look.
#[derive(Default)]
struct Health {
    is_away: bool,
}

impl Health {
    fn of<T>(&mut self, what: &str, result: Result<T, LedgerError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.is_away = false;
                Some(value)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(
                        error = &error as &dyn Error,
                        "the ledger could not be asked for {what}; trying again"
                    );
                }
                None
            }
        }
    }
}
