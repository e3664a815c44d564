//! Waits for a condition, with a deadline.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use tokio::time::timeout;

/// The deadline for anything that should happen soon. It is generous because machines are shared.
pub const SOON: Duration = Duration::from_secs(30);

/// The longest pause between two looks.
const LONGEST: Duration = Duration::from_millis(50);

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

/// Calls `look` again and again until it returns true.
///
/// # Panics
/// When the deadline passes. `what` names the condition in the message.
pub async fn until<F>(what: &str, deadline: Duration, mut look: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    eventually(what, deadline, || {
        let looked = look();
        async move { looked.await.then_some(()) }
    })
    .await;
}

/// The same for a look that says what is missing.
///
/// # Panics
/// When the deadline passes, with what the last look said, or when a look takes longer than that.
pub async fn eventually_ok<T, E, F>(deadline: Duration, mut look: impl FnMut() -> F) -> T
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + deadline;
    let (mut last, mut pause) = (String::new(), Duration::from_millis(10));
    loop {
        match timeout(deadline.max(SOON), look()).await {
            Ok(Ok(found)) => return found,
            Ok(Err(missing)) => last = missing.to_string(),
            Err(_) => panic!("a look does not end; before: {last}"),
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {last}");
        tokio::time::sleep(pause).await;
        // A long wait looks less often: each look costs the servers.
        pause = LONGEST.min(pause * 3 / 2);
    }
}
