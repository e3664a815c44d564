//! Runs the exporter of traces beside a service's work, and ends it in time.

use std::time::Duration;

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use traces::Exporter;

/// What the last export gets at least, even if the work has taken all the time.
const LEAST: Duration = Duration::from_secs(1);

/// No deadline is longer, so that the clock can hold it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// An exporter that runs.
pub(crate) struct Exporting(JoinHandle<()>);

impl Exporting {
    /// Exports until `finished`. What is left then has what remains of `deadline` since `shutdown`, and no longer than
    /// the exporter itself goes on.
    pub(crate) fn start(
        exporter: Exporter,
        deadline: Duration,
        shutdown: &CancellationToken,
        finished: &CancellationToken,
    ) -> Self {
        let (shutdown, finished) = (shutdown.clone(), finished.clone());
        Self(tokio::spawn(async move {
            let give_up = CancellationToken::new();
            let mut work = std::pin::pin!(exporter.run(finished.clone(), give_up.clone()));
            let limit = async {
                let last = tokio::select! {
                    () = shutdown.cancelled() => Instant::now() + deadline.min(LONGEST),
                    () = finished.cancelled() => Instant::now(),
                };
                finished.cancelled().await;
                sleep_until(last.max(Instant::now() + LEAST)).await;
            };
            tokio::select! {
                () = &mut work => return,
                () = limit => give_up.cancel(),
            }
            work.await;
        }))
    }

    /// Waits for the last export.
    pub(crate) async fn done(self) {
        let _ = self.0.await;
    }
}
