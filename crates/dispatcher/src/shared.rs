//! What all steps use.

use std::{error::Error, num::NonZeroU32, time::Duration};

use broker::Names;
use domain::RetrySchedule;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use ledger::{Ledger, LedgerError};
use service_kit::until_done;
use tokio_util::sync::CancellationToken;

use crate::{abandoned::Abandoned, alarm::Alarm, in_flight::InFlight, metrics::Metrics};

pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    pub(crate) in_flight: InFlight,
    pub(crate) metrics: Metrics,
    /// Counts the jobs that are parked for the data of their rows.
    pub(crate) parks: DefaultDirectRateLimiter,
    /// How long the ledger keeps a delivery.
    pub(crate) keep: Duration,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
    /// Cancelled when a task panics that jobs need to come to their end.
    pub(crate) broken: CancellationToken,
}

/// The maximum of jobs that are parked for the data of their rows, for each process and minute.
const PARKED_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// Counts the jobs that are parked for the data of their rows.
pub(crate) fn parks() -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_minute(PARKED_PER_MINUTE))
}

impl Shared {
    /// For a task that must not panic.
    pub(crate) const fn alarm(&self) -> Alarm<'_> {
        Alarm(&self.broken)
    }

    /// Asks the ledger about a batch of jobs until it answers. Returns the answers about its parts: a batch that fails by a
    /// row's own data is halved. A single job that fails so twice is given to `park`, with what is wrong. Every other
    /// error is the server's, and the same is asked again. Stops for a while when there are many jobs to park
    /// ([`Shared::wait_to_park`]).
    pub(crate) async fn in_halves<'j, J, T, F>(
        &self,
        what: &str,
        jobs: &'j [J],
        step: impl Fn(&'j [J]) -> F,
        mut park: impl FnMut(&'j J, String),
    ) -> Result<Vec<T>, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        let (mut parts, mut answers) = (vec![(jobs, false)], Vec::new());
        while let Some((part, may_park)) = parts.pop() {
            let ask = || {
                let asking = step(part);
                async {
                    match asking.await {
                        Err(error) if error.of_row().is_some() => Ok(Err(error)),
                        done => done.map(Ok),
                    }
                }
            };
            match (self.until_done(what, ask).await?, part) {
                (Ok(answer), _) => answers.push(answer),
                (Err(error), [job]) if may_park => park(job, error.of_row().unwrap_or_default()),
                (Err(_), [_]) => {
                    self.wait_to_park().await?;
                    parts.push((part, true));
                }
                (Err(error), _) => {
                    let (error, jobs) = (&error as &dyn Error, part.len());
                    tracing::warn!(error, jobs, "{what} failed: tried in halves");
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([(other, false), (one, false)]);
                }
            }
        }
        Ok(answers)
    }

    /// Returns when a faulty job may be parked, ten a minute. If there are more, the fault may be another one than
    /// theirs. No job is recorded or begun meanwhile.
    async fn wait_to_park(&self) -> Result<(), Abandoned> {
        if self.parks.check().is_ok() {
            return Ok(());
        }
        tracing::error!(
            "more than {PARKED_PER_MINUTE} jobs a minute fail by the data of their rows: this process stops until the next \
             one may be parked. See the dead jobs (webhookctl dead list)"
        );
        self.abandon.run_until_cancelled(self.parks.until_ready()).await.ok_or(Abandoned)
    }

    /// Asks the ledger until it answers, however long that takes.
    pub(crate) async fn until_done<T, F>(&self, what: &str, step: impl FnMut() -> F) -> Result<T, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        until_done(what, &self.abandon, step).await.ok_or(Abandoned)
    }
}
