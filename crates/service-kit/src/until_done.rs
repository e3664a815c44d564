//! The endless retry.

use std::error::Error;

use broker::Backoff;
use domain::error_chain;
use tokio_util::sync::CancellationToken;

/// Retries `step` with back-off for as long as it fails, as it does while the database is unavailable. Logs every failure.
/// Returns `None` when `abandon` comes before that. Nothing is acknowledged meanwhile: what was to follow must not happen
/// then, and the message that caused it comes again.
pub async fn until_done<T, E, F>(what: &str, abandon: &CancellationToken, mut step: impl FnMut() -> F) -> Option<T>
where
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::default();
    loop {
        match abandon.run_until_cancelled(step()).await? {
            Ok(done) => return Some(done),
            Err(error) => tracing::warn!(error = error_chain(&error), "{what} failed; trying again"),
        }
        abandon.run_until_cancelled(backoff.pause()).await?;
    }
}
