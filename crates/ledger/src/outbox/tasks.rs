//! Tasks: work that takes longer than the request that asks for it, in steps. If a process dies, another one continues.

use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    outbox::OutboxBatch,
    statement::{rows, sql},
};

/// The lease of a step, in which nobody else takes it: longer than any step takes.
pub(crate) const STEP_LEASE: &str = "interval '30 seconds'";
/// When a step is taken again that failed, most often for a lock: long before its lease ends, and after the others of its
/// kind.
pub(crate) const AFTER_FAILURE: &str = "interval '5 seconds'";
/// A step waits for a lock for less time than a readiness check waits for its connection, and than a request waits for the
/// step.
pub(crate) const STEP_LOCKS: &str = "SET LOCAL lock_timeout = '400ms'";

/// A step that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Deliveries that the step changed.
    pub deliveries: usize,
    /// The jobs that the caller has to publish, if there are any.
    pub batch: Option<OutboxBatch>,
}

/// Counts of webhooks that have tasks or recoveries under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Webhooks with a cancellation under way.
    pub cancel: i64,
    /// Active webhooks with held jobs.
    pub wake: i64,
    /// Webhooks with a recovery.
    pub recover: i64,
}

rows! { Running { cancel, wake, recover } }

const COUNT: &str = "SELECT (SELECT count(*) FROM cancellations) AS cancel, \
            (SELECT count(*) FROM held_webhooks) AS wake, \
            (SELECT count(*) FROM recoveries WHERE finished_at IS NULL) AS recover";

impl Ledger {
    /// Returns the result of a leased step. One that failed is made due again soon by `soon`, which waits for no lock: somebody
    /// may hold that of its row for long. Where it does not come to it, the lease ends by itself.
    pub(crate) async fn step_taken<F>(
        &self,
        step: Result<Step, LedgerError>,
        soon: F,
    ) -> Result<Option<Step>, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> QueryResult<usize>,
    {
        if matches!(&step, Err(error) if !error.is_unavailable()) {
            let _ = self.run("step_taken", soon).await;
        }
        step.map(Some)
    }

    /// Counts the tasks and recoveries under way.
    pub async fn tasks_count(&self) -> Result<Running, LedgerError> {
        self.run("tasks_count", async |conn| sql(COUNT).get_result(conn).await).await
    }
}
