//! Logs on standard error, as text for people or as JSON lines for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, SettingsError};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Sends this process's logs to standard error. A second call in one process changes nothing.
///
/// # Errors
/// [`SettingsError::Invalid`] for `log.level` when `level` is not a list of filter directives.
pub fn init(format: LogFormat, level: &str) -> Result<(), SettingsError> {
    let filter = filter(level)?;
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let already_set = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).finish().try_init().is_err(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init().is_err(),
    };
    if already_set {
        tracing::debug!("logs were set up before");
    }
    Ok(())
}

/// A bare word that is no level would be taken for the name of a target: a typing mistake would silence everything.
fn filter(level: &str) -> Result<EnvFilter, SettingsError> {
    let invalid =
        |reason: String| SettingsError::invalid("log.level", format_args!("invalid level {level:?}: {reason}"));
    let directives: Vec<_> = level.split(',').map(str::trim).collect();
    for directive in &directives {
        let bare = !directive.contains(['=', '[']);
        if bare && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(directive)) {
            return Err(invalid(format!("{directive:?} is not one of {}, nor target=level", LEVELS.join(", "))));
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
    fn what_is_no_directive_is_refused_with_the_settings_name() {
        for level in ["", "inffo", "info,", "dispatcher=loud", "warn,debgu"] {
            let error = filter(level).expect_err(level).to_string();
            let beginning = format!("log.level (WEBHOOKS__LOG__LEVEL): invalid level {level:?}: ");
            assert!(error.starts_with(&beginning), "{error}");
        }
    }
}
