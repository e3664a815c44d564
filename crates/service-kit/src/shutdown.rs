//! Turns a signal into an orderly end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code that a shell reports for a process that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// A token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with code 130. After this call
/// neither signal ends the process by itself. Call it inside a tokio runtime.
///
/// # Errors
/// When the system refuses a signal handler.
pub fn on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "shutting down");
        cancelled.cancel();
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "second signal: ending at once");
        #[expect(clippy::disallowed_methods, reason = "whoever sends a second signal wants the process to end now")]
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
