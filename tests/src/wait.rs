//! Waits for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The deadline for anything that should happen soon. It is generous because machines are shared.
pub const SOON: Duration = Duration::from_secs(30);

/// Calls `look` again and again until it finds something.
///
/// # Panics
/// When the deadline passes. `what` names the condition in the message.
pub async fn eventually<T, F>(what: &str, deadline: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
