//! What all steps use.

use std::time::Duration;

use broker::Names;
use domain::RetrySchedule;
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
    /// How long the ledger keeps a delivery.
    pub(crate) keep: Duration,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
    /// Cancelled when a task panics that jobs need to come to their end.
    pub(crate) broken: CancellationToken,
}

impl Shared {
    /// For a task that must not panic.
    pub(crate) const fn alarm(&self) -> Alarm<'_> {
        Alarm(&self.broken)
    }

    /// Asks the ledger until it answers, however long that takes.
    pub(crate) async fn until_done<T, F>(&self, what: &str, step: impl FnMut() -> F) -> Result<T, Abandoned>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        until_done(what, &self.abandon, step).await.ok_or(Abandoned)
    }
}
