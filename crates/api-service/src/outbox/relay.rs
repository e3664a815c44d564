//! The outbox relay. It publishes the jobs of tests and resends, those that a step has added and not published, and
//! notices. It publishes held jobs again, and runs the steps of cancellations and recoveries. Any number of replicas can
//! run it concurrently.

use std::time::Duration;

use broker::PublishError;
use domain::{TenantId, error_chain};
use ledger::{Ledger, LedgerError, OutboxBatch, TaskStep};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Outbox, Wakes};
use crate::metrics::Metrics;

/// The interval at which the relay polls the ledger without a request.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The poll interval of held jobs. It is short, so that few jobs are published together and delay no others.
const HELD_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The most jobs of the outbox in a batch.
const BATCH_JOBS: u16 = 200;
/// Steps of one recovery per second, roughly (the rate is exact), and the maximum of deliveries in a step.
const STEPS_PER_SECOND: u16 = 4;
const MAX_STEP_DELIVERIES: u16 = 1_000;
/// The pause between two steps of one cancellation, which leaves the database to other work.
const CANCELLATION_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Relay {
    pub(crate) ledger: Ledger,
    pub(crate) outbox: Outbox,
    pub(crate) wakes: Wakes,
    pub(crate) metrics: Metrics,
    /// Deliveries per second that are published of one webhook, held ones and those of a recovery.
    pub(crate) recover_per_second: u16,
    /// The time for which bodies are kept. Older deliveries are not sent again.
    pub(crate) bodies: Duration,
}

impl Relay {
    /// Works until `shutdown`, then finishes the steps under way within `deadline`, or abandons them.
    pub(crate) async fn run(self, shutdown: &CancellationToken, deadline: Duration) {
        let working = async {
            tokio::join!(
                self.publish_outbox(shutdown),
                self.publish_notices(shutdown),
                self.steps(TaskKind::Recover, &self.wakes.recoveries, shutdown),
                self.steps(TaskKind::Release, &self.wakes.activations, shutdown),
                self.steps(TaskKind::Cancel, &self.wakes.cancellations, shutdown),
                self.count(shutdown),
            )
        };
        let overdue = async {
            shutdown.cancelled().await;
            sleep(deadline).await;
        };
        tokio::select! {
            _ = working => {}
            () = overdue => tracing::warn!("shutdown.deadline has passed: other processes go on with the outbox and the tasks"),
        }
    }

    async fn publish_outbox(&self, shutdown: &CancellationToken) {
        let mut outage_log = OutageLog::default();
        while wait_for_wake(&self.wakes.jobs, POLL_INTERVAL, shutdown).await {
            while self.outbox.is_open() && !shutdown.is_cancelled() {
                let leased = self.ledger.outbox_lease(BATCH_JOBS).await;
                let Some(batch) = outage_log.of("the outbox", leased).filter(|batch| !batch.is_empty()) else {
                    break;
                };
                log_unpublished(self.outbox.publish(&batch).await);
            }
        }
    }

    async fn publish_notices(&self, shutdown: &CancellationToken) {
        let mut outage_log = OutageLog::default();
        while shutdown.run_until_cancelled(sleep(POLL_INTERVAL)).await.is_some() {
            while self.outbox.is_open() && !shutdown.is_cancelled() {
                let leased = self.ledger.notices_lease(BATCH_JOBS).await;
                let Some(notices) = outage_log.of("notices", leased).filter(|notices| !notices.is_empty()) else {
                    break;
                };
                match self.outbox.publish_notices(&notices).await {
                    Ok(published) => self.metrics.notices(&published),
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(error, "published notices could not be noted; they will be published again");
                    }
                }
            }
        }
    }

    /// Takes the due steps of one kind of work, for all webhooks.
    async fn steps(&self, work: TaskKind, poke: &Notify, shutdown: &CancellationToken) {
        let rate = work.rate(self.recover_per_second);
        let (mut outage_log, mut wait, mut last_tenant) = (OutageLog::default(), work.poll_interval(), None);
        while wait_for_wake(poke, wait, shutdown).await {
            wait = work.poll_interval();
            while !shutdown.is_cancelled() {
                let step = self.step(work, rate, &mut last_tenant).await;
                let Some(TaskStep { deliveries, batch }) = outage_log.of(work.name(), step).flatten() else { break };
                if let Some(batch) = batch {
                    self.publish(work, &batch).await;
                }
                self.metrics.task_step(work.name(), deliveries);
                wait = rate.pause;
            }
        }
    }

    /// Takes a due step. Recoveries of several tenants take turns: `last_tenant` had the last one.
    async fn step(
        &self,
        work: TaskKind,
        StepRate { most, pause }: StepRate,
        last_tenant: &mut Option<TenantId>,
    ) -> Result<Option<TaskStep>, LedgerError> {
        match work {
            TaskKind::Cancel => self.ledger.cancellation_step(None, pause).await,
            // These steps make jobs, which must be published.
            TaskKind::Release | TaskKind::Recover if !self.outbox.is_open() => Ok(None),
            TaskKind::Release if self.outbox.is_slow_crowded().await => Ok(None),
            TaskKind::Release => self.ledger.jobs_release(most).await,
            TaskKind::Recover if self.outbox.is_bulk_crowded().await => Ok(None),
            TaskKind::Recover => self.ledger.recovery_step(most, pause, self.bodies, last_tenant).await,
        }
    }

    /// Updates the tasks' metric.
    async fn count(&self, shutdown: &CancellationToken) {
        let mut outage_log = OutageLog::default();
        while shutdown.run_until_cancelled(sleep(POLL_INTERVAL)).await.is_some() {
            if let Some(running) = outage_log.of("tasks", self.ledger.tasks_count().await) {
                self.metrics.tasks(running);
            }
        }
    }

    async fn publish(&self, work: TaskKind, batch: &OutboxBatch) {
        log_unpublished(match work {
            TaskKind::Release => self.outbox.publish_released(batch).await,
            TaskKind::Recover => self.outbox.publish_recovered(batch).await,
            TaskKind::Cancel => self.outbox.publish(batch).await,
        });
    }
}

/// Logs that a batch was not published. It is when its lease ends.
fn log_unpublished(outcome: Result<(), PublishError>) {
    if let Err(error) = outcome {
        tracing::warn!(error = error_chain(&error), "jobs of the outbox could not be published; they will be later");
    }
}

/// Work that is done in steps.
#[derive(Clone, Copy)]
enum TaskKind {
    Cancel,
    Release,
    Recover,
}

/// The most deliveries in a step of one webhook, and the pause until that webhook's next step.
#[derive(Clone, Copy)]
struct StepRate {
    most: u16,
    pause: Duration,
}

impl TaskKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Release => "wake",
            Self::Recover => "recover",
        }
    }

    /// Returns the pause between two polls for this work.
    const fn poll_interval(self) -> Duration {
        match self {
            Self::Release => HELD_POLL_INTERVAL,
            Self::Cancel | Self::Recover => POLL_INTERVAL,
        }
    }

    /// Work that publishes jobs keeps to a rate that a receiver can take right after its repair.
    fn rate(self, per_second: u16) -> StepRate {
        match self {
            Self::Cancel => StepRate { most: u16::MAX, pause: CANCELLATION_PAUSE },
            Self::Recover => {
                let most = (per_second / STEPS_PER_SECOND).clamp(1, MAX_STEP_DELIVERIES);
                StepRate { most, pause: Duration::from_secs_f64(f64::from(most) / f64::from(per_second)) }
            }
            // The ledger knows when more of a webhook's held jobs are due.
            Self::Release => StepRate { most: per_second, pause: HELD_POLL_INTERVAL },
        }
    }
}

/// Waits for a wake-up or `at_the_latest`. `false` at the shutdown.
async fn wait_for_wake(poke: &Notify, at_the_latest: Duration, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => false,
        () = poke.notified() => true,
        () = sleep(at_the_latest) => true,
    }
}

/// Logs a database outage once, not at every query.
#[derive(Default)]
struct OutageLog {
    is_unavailable: bool,
}

impl OutageLog {
    fn of<T>(&mut self, what: &str, result: Result<T, LedgerError>) -> Option<T> {
        match result {
            Ok(value) => {
                self.is_unavailable = false;
                Some(value)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_unavailable, true) {
                    tracing::warn!(
                        error = error_chain(&error),
                        "the ledger could not be asked for {what}; trying again"
                    );
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_rate_is_the_rate_in_a_few_steps_a_second() {
        for rate in [1, 3, 20, 200, 999, 20_000, u16::MAX] {
            let StepRate { most, pause } = TaskKind::Recover.rate(rate);
            assert!((1..=MAX_STEP_DELIVERIES).contains(&most), "{rate}");
            let per_second = f64::from(most) / pause.as_secs_f64();
            assert!((per_second - f64::from(rate)).abs() < 1e-3 * f64::from(rate), "{rate}: {per_second}");
        }
        let StepRate { most, pause } = TaskKind::Recover.rate(200);
        assert_eq!((most, pause), (50, Duration::from_millis(250)));
    }
}
