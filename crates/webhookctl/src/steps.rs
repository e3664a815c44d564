//! The pace of a command that works in many small steps while the services run.

use std::{fmt::Display, time::Duration};

use anyhow::Context;
use ledger::LedgerError;
use tokio::time::{Instant, sleep};

use crate::{output, server_error};

/// The pause between two steps, which leaves the database to other work, as that of api-service.
pub(crate) const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Tries of a step that fails, and the pause before the next one.
const MAX_TRIES: u32 = 20;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The time between two lines that say how far it has come.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Steps, of which failed ones are taken again.
pub(crate) struct Steps {
    /// Tries of the present step that failed.
    pub(crate) failed: u32,
    shown_at: Instant,
    /// The advice when a step cannot be taken.
    interrupted: &'static str,
}

impl Steps {
    pub(crate) fn new(interrupted: &'static str) -> Self {
        Self { failed: 0, shown_at: Instant::now(), interrupted }
    }

    /// Takes a step until it succeeds, and says when it is tried again. Fails if another try is of no use.
    pub(crate) async fn take<T>(
        &mut self,
        what: &str,
        step: impl AsyncFn() -> Result<T, LedgerError>,
    ) -> anyhow::Result<T> {
        self.failed = 0;
        loop {
            let error = match step().await {
                Ok(taken) => return Ok(taken),
                Err(error) => error,
            };
            let text = format!("{what} is tried again: {error}");
            self.retry(error).await?;
            output::error(text);
        }
    }

    /// Pauses before a step is tried again that the ledger refused. Fails if that is of no use.
    pub(crate) async fn retry(&mut self, error: LedgerError) -> anyhow::Result<()> {
        self.failed += 1;
        if error.is_unavailable() || self.failed == MAX_TRIES {
            return server_error::database(Err(error)).context(self.interrupted);
        }
        sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// Prints how far the command has come, if the last such line is old enough.
    pub(crate) fn show_progress(&mut self, so_far: impl Display) -> anyhow::Result<()> {
        if self.shown_at.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.shown_at = Instant::now();
        output::line(so_far)
    }
}
