//! Turns a signal into an orderly end.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// The exit code that a shell reports for a process that an interrupt ended.
const EXIT_INTERRUPTED: i32 = 130;
/// A signal that comes again so soon is the same one: `timeout`, `npm` and their like pass on what the terminal, or they
/// themselves, have sent to the whole group.
const SAME_SIGNAL_PERIOD: Duration = Duration::from_millis(250);

/// A token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with code 130, unless it is the same
/// one within a quarter of a second. After this call neither signal ends the process by itself. Call it inside a tokio
/// runtime.
///
/// # Errors
/// When the system refuses a signal handler.
pub fn on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let first = either(&mut terminate, &mut interrupt).await;
        let came = Instant::now();
        tracing::info!(signal = first, "shutting down");
        cancelled.cancel();
        let second = loop {
            let second = either(&mut terminate, &mut interrupt).await;
            if !is_echo(first, second, came.elapsed()) {
                break second;
            }
        };
        tracing::warn!(signal = second, "second signal: ending at once");
        #[expect(clippy::disallowed_methods, reason = "whoever sends a second signal wants the process to end now")]
        std::process::exit(EXIT_INTERRUPTED);
    });
    Ok(token)
}

fn is_echo(first: &str, second: &str, after: Duration) -> bool {
    first == second && after < SAME_SIGNAL_PERIOD
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_passed_on_counts_once_and_an_impatient_one_counts() {
        assert!(is_echo("SIGINT", "SIGINT", Duration::from_millis(5)));
        assert!(!is_echo("SIGTERM", "SIGINT", Duration::from_millis(5)));
        assert!(!is_echo("SIGINT", "SIGINT", Duration::from_millis(400)));
    }
}
