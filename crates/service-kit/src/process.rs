//! What the `main` of every service does.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::time::Duration;

use domain::error_chain;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use crate::settings::{Settings, SettingsError};
use crate::{logs, shutdown};

/// The exit code for settings or arguments that cannot be used.
const EXIT_UNUSABLE: u8 = 2;
/// What a process gets beyond `shutdown.deadline` before it is abandoned.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

type BoxError = Box<dyn Error + Send + Sync>;

/// Runs a service and returns what `main` returns: 0 when `service` succeeded, 1 when it failed, 2 when the settings or
/// the arguments cannot be used. An error is one line on standard error, with its causes. A panic of `service` goes on
/// in the caller.
///
/// `service` gets the settings and a token that SIGTERM or SIGINT cancels. From then on it has `shutdown.deadline` to
/// return. Two seconds later it is abandoned, which is a failure. `about` is the line that `--help` prints.
pub fn run<S, F, E>(name: &str, about: &str, service: S) -> ExitCode
where
    S: FnOnce(Settings, CancellationToken) -> F,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.iter().map(|argument| argument.to_str()).collect::<Vec<_>>()[..] {
        [] => {}
        [Some("--version" | "-V")] => return say(&format!("{name} {}", env!("CARGO_PKG_VERSION"))),
        [Some("--help" | "-h")] => return say(&help(name, about)),
        _ => return fail(EXIT_UNUSABLE, &format!("{name}: takes no arguments but --help and --version")),
    }
    let settings = match prepare() {
        Ok(settings) => settings,
        Err(error) => return fail(EXIT_UNUSABLE, &format!("{name}: {}", error_chain(&error))),
    };
    match supervise(settings, service) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("{name}: {}", error_chain(error.as_ref()))),
    }
}

fn prepare() -> Result<Settings, SettingsError> {
    let settings = Settings::load()?;
    logs::init(settings.log.format, &settings.log.level)?;
    // Thousands of attempts need thousands of sockets. The soft limit is low only for programs that use select(2).
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(error = error_chain(&error), "the limit of open files could not be raised");
    }
    Ok(settings)
}

/// Returns the maximum of descriptors that this process may have open, if it can be read.
pub fn descriptor_limit() -> Option<u64> {
    rlimit::Resource::NOFILE.get_soft().ok()
}

fn supervise<S, F, E>(settings: Settings, service: S) -> Result<(), BoxError>
where
    S: FnOnce(Settings, CancellationToken) -> F,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let deadline = settings.shutdown.deadline;
    let outcome = runtime.block_on(async {
        let shutdown = shutdown::on_signals()?;
        let overdue = async {
            shutdown.cancelled().await;
            tokio::time::sleep(deadline.saturating_add(GRACE_PERIOD)).await;
        };
        // It runs on a thread of the pool, like all that it talks to. This thread would have to be woken for each step.
        let service = tokio::spawn(service(settings, shutdown.clone()));
        tokio::select! {
            outcome = service => Ok(outcome.map(|outcome| outcome.map_err(Into::into))),
            () = overdue => Err(Overdue(deadline).into()),
        }
    });
    // What still runs has no one to report to, and ends with the process. A runtime that is dropped would cancel it, and
    // lapin's threads panic then.
    std::mem::forget(runtime);
    outcome.and_then(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic.into_panic())))
}

#[derive(Debug, thiserror::Error)]
#[error("still busy after shutdown.deadline (WEBHOOKS__SHUTDOWN__DEADLINE), {}", humantime::format_duration(*.0))]
struct Overdue(Duration);

fn help(name: &str, about: &str) -> String {
    format!(
        "{name}: {about}\n\nConfigured by environment variables WEBHOOKS__SECTION__KEY and by the TOML file that \
         WEBHOOKS_CONFIG names.\nArguments: --help, --version"
    )
}

/// `println!` would panic when nobody reads.
fn say(text: &str) -> ExitCode {
    let _ = writeln!(stdout(), "{text}");
    ExitCode::SUCCESS
}

fn fail(code: u8, text: &str) -> ExitCode {
    let _ = writeln!(stderr(), "{text}");
    ExitCode::from(code)
}
