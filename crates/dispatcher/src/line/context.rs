//! The context of all steps: the ledger and its clock, names, metrics, limits.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use broker::Names;
use domain::RetrySchedule;
use governor::DefaultDirectRateLimiter;
use ledger::{Ledger, LedgerError};
use service_kit::{DatabaseWatch, EssentialTasks, until_done};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    line::{in_flight::InFlight, outcome::Abandoned},
    metrics::Metrics,
};

pub(crate) struct LineContext {
    pub(crate) ledger: Ledger,
    /// Due times and recorded times are the database's.
    pub(crate) database: DatabaseWatch,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Metrics,
    /// Counts the jobs that are parked for the data of their rows. One of them is tried at a time.
    pub(crate) parks: Mutex<DefaultDirectRateLimiter>,
    /// How long the ledger keeps a delivery.
    pub(crate) keep: Duration,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
    /// The tasks without which no job ends.
    pub(crate) essential: EssentialTasks,
}

/// The maximum of jobs that are parked for the data of their rows, for each process and minute.
pub(crate) const PARKED_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();

impl LineContext {
    /// Asks the ledger about a batch of jobs until it answers. Returns the answer about each, in their order. A batch that
    /// fails by a row's own data is halved: `None` is the answer about a job that fails alone, and has to be tried once more
    /// ([`LineContext::alone`]). Every other error is the server's, and the same is asked again.
    pub(crate) async fn in_halves<'j, J, T, F>(
        &self,
        what: &str,
        jobs: &'j [J],
        step: impl Fn(&'j [J]) -> F,
    ) -> Result<Vec<Option<T>>, Abandoned>
    where
        F: Future<Output = Result<Vec<T>, LedgerError>>,
    {
        let (mut parts, mut answers) = (vec![jobs], Vec::with_capacity(jobs.len()));
        while let Some(part) = parts.pop() {
            match (self.until_judged(what, || step(part)).await?, part) {
                (Ok(of_part), _) => answers.extend(of_part.into_iter().map(Some)),
                (Err(_), [_]) => answers.push(None),
                (Err(fault), _) => {
                    tracing::warn!(fault, jobs = part.len(), "{what} failed: tried in halves");
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([other, one]);
                }
            }
        }
        Ok(answers)
    }

    /// Tries the step of one job whose row seems to be at fault. Returns the fault if it fails again: the job is to be
    /// parked. Ten jobs a minute are. Others wait here with their places, so that the process stops in the end, and are
    /// tried again then: the fault may be another one than theirs.
    pub(crate) async fn alone<T, F>(
        &self,
        what: &str,
        mut step: impl FnMut() -> F,
    ) -> Result<Result<T, String>, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        let parks = self.abandon.run_until_cancelled(self.parks.lock()).await.ok_or(Abandoned)?;
        match self.until_judged(what, &mut step).await? {
            Err(fault) if parks.check().is_err() => tracing::error!(
                fault,
                "{what} fails by the data of more than {PARKED_PER_MINUTE} jobs a minute: others wait. See the dead jobs \
                 (webhookctl dead list)"
            ),
            done => return Ok(done),
        }
        self.abandon.run_until_cancelled(parks.until_ready()).await.ok_or(Abandoned)?;
        self.until_judged(what, &mut step).await
    }

    /// Asks the ledger until it answers, or says that a row's own data is at fault.
    pub(crate) async fn until_judged<T, F>(
        &self,
        what: &str,
        mut step: impl FnMut() -> F,
    ) -> Result<Result<T, String>, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        let ask = || {
            let asking = step();
            async {
                match asking.await {
                    Ok(answer) => Ok(Ok(answer)),
                    Err(error) => error.of_row().map(Err).ok_or(error),
                }
            }
        };
        self.until_done(what, ask).await
    }

    /// Asks the ledger until it answers, however long that takes.
    pub(crate) async fn until_done<T, F>(&self, what: &str, step: impl FnMut() -> F) -> Result<T, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        until_done(what, &self.abandon, step).await.ok_or(Abandoned)
    }
}
