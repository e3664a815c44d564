//! Waits for a condition, with a deadline.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

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
    eventually_ok(deadline, || {
        let looked = look();
        async move { looked.await.ok_or(what) }
    })
    .await
}

/// The same for a look that says what is missing.
///
/// # Panics
/// When the deadline passes, with what the last look said.
pub async fn eventually_ok<T, E, F>(deadline: Duration, mut look: impl FnMut() -> F) -> T
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + deadline;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(missing) => assert!(Instant::now() < end, "not within {deadline:?}: {missing}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
