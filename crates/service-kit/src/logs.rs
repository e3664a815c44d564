//! Logs on standard error, as text for people or as JSON lines for machines.

use std::io::{self, IsTerminal, Write};

use domain::escaped;
use tracing::{Level, Metadata};
use tracing_subscriber::{EnvFilter, filter::filter_fn, fmt, layer::SubscriberExt, registry, util::SubscriberInitExt};

use crate::settings::{LogFormat, SettingsError};

const LEVEL_NAMES: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The crates of this workspace. All others are foreign.
const OWN_CRATES: [&str; 14] = [
    "api_service",
    "broker",
    "console",
    "dispatcher",
    "domain",
    "egress",
    "event_ingest",
    "ledger",
    "service_kit",
    "signing",
    "tls",
    "traces",
    "upkeep",
    "webhookctl",
];

/// Directives that are added unless one names their crate. lapin hands each error on to its caller, which says what the error
/// means, and logs as errors what a first start expects: that a queue does not exist yet. actix-http logs as an error each
/// malformed request that anybody sends. tokio-postgres logs the values of each statement: bodies, and texts searched for.
const QUIET_DIRECTIVES: [(&str, &str); 3] = [
    ("lapin", "lapin=off"),
    ("actix_http", "actix_http::h1::dispatcher=off"),
    ("tokio_postgres", "tokio_postgres=info"),
];

/// Sends this process's logs to standard error. A second call in one process changes nothing. Foreign crates log at
/// `debug` at most, whatever `level` asks for: at `trace` they show credentials and whole messages.
///
/// # Errors
/// [`SettingsError::Invalid`] for `log.level` when `level` is not a list of filter directives.
pub fn init(format: LogFormat, level: &str) -> Result<(), SettingsError> {
    let filter = filter(level)?;
    let registry = registry().with(filter).with(filter_fn(may_speak));
    // By default, a line that cannot be written panics: with the reader of its log, a service would end.
    let lines = fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    let already_set = match format {
        LogFormat::Text => registry.with(lines.with_ansi(io::stderr().is_terminal())).try_init().is_err(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_writer(|| Escaped(io::stderr()))).try_init().is_err()
        }
    };
    if already_set {
        tracing::debug!("logs were set up before");
    }
    Ok(())
}

/// Writes JSON without the control characters that JSON permits, such as U+009B: a terminal that shows the log would obey
/// them. The text format escapes them itself.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    /// Gets a line as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escaped(&String::from_utf8_lossy(line)).as_bytes()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn may_speak(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::DEBUG || is_ours(metadata.target())
}

fn is_ours(target: &str) -> bool {
    OWN_CRATES.contains(&target.split("::").next().unwrap_or_default())
}

/// Refuses a bare word that is no level. It would name a target, and a typing mistake would silence everything.
fn filter(level: &str) -> Result<EnvFilter, SettingsError> {
    let invalid =
        |reason: String| SettingsError::invalid("log.level", format_args!("invalid level {level:?}: {reason}"));
    let mut directives: Vec<_> = level.split(',').map(str::trim).collect();
    for directive in &directives {
        let bare = !directive.contains(['=', '[']);
        if bare && !LEVEL_NAMES.iter().any(|level| level.eq_ignore_ascii_case(directive)) {
            return Err(invalid(format!("{directive:?} is not one of {}, nor target=level", LEVEL_NAMES.join(", "))));
        }
    }
    for (name, quiet) in QUIET_DIRECTIVES {
        if !directives.iter().any(|directive| directive.starts_with(name)) {
            directives.push(quiet);
        }
    }
    EnvFilter::builder().parse(directives.join(",")).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_understood() {
        for level in ["info", "DEBUG", "off", "warn,dispatcher=debug", "info, ledger::deliveries=trace"] {
            assert!(filter(level).is_ok(), "{level}");
        }
    }

    #[test]
    fn a_line_of_json_holds_nothing_that_a_terminal_obeys() {
        let mut written = Vec::new();
        let mut line = serde_json::json!({"queue": "q\u{9b}2J\u{7f}\u{202e}é"}).to_string();
        line.push('\n');
        Escaped(&mut written).write_all(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"queue\":\"q\\u009b2J\\u007f\\u202eé\"}\n");
    }

    #[test]
    fn a_quiet_crate_speaks_when_it_is_named() {
        for (name, quiet) in QUIET_DIRECTIVES {
            assert!(filter("debug").unwrap().to_string().contains(quiet), "{name}");
            assert!(!filter(&format!("info,{name}::x=warn")).unwrap().to_string().contains(quiet), "{name}");
        }
    }

    #[test]
    fn every_crate_of_the_workspace_is_ours_and_no_other() {
        let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
        let folders = crates.map(Result::unwrap).filter(|found| found.file_type().unwrap().is_dir());
        let mut names: Vec<_> =
            folders.map(|found| found.file_name().into_string().unwrap().replace('-', "_")).collect();
        names.sort();
        assert_eq!(names, OWN_CRATES);
        assert!(is_ours("ledger") && is_ours("ledger::deliveries"));
        assert!(!is_ours("lapin::io_loop") && !is_ours("ledgers") && !is_ours("amq_protocol_tcp"));
    }

    #[test]
    fn what_is_no_directive_is_refused_with_the_settings_name() {
        for level in ["", "inffo", "info,", "dispatcher=loud", "warn,debgu"] {
            let error = filter(level).expect_err(level).to_string();
            let beginning = format!("log.level (WEBHOOKS__LOG__LEVEL): invalid level {level:?}: ");
            assert!(error.starts_with(&beginning), "{error}");
        }
    }
}
