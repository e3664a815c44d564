//! What is wrong with the settings, in the words of whoever has to correct them.

use std::fmt::{self, Display};
use std::path::PathBuf;

/// Why the settings cannot be used. No variant carries the value of a [`Sensitive`](super::Sensitive) setting.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A key that no section has, or a section that does not exist: mostly a spelling mistake.
    #[error("{key}: unknown; known here: {}", known.join(", "))]
    Unknown {
        /// What was written.
        key: Key,
        /// What could have been written there.
        known: &'static [&'static str],
    },
    /// Settings without a default that no source sets.
    #[error("{} {} not set", listed(keys), if keys.len() == 1 { "is" } else { "are" })]
    Missing {
        /// The settings: one at least.
        keys: Vec<Key>,
    },
    /// A value that cannot be used.
    #[error("{key}: {reason}")]
    Invalid {
        /// The setting.
        key: Key,
        /// What is wrong with the value. Quotes it unless it is sensitive.
        reason: String,
    },
    /// An environment variable that begins like a setting but cannot be one.
    #[error("environment variable {name}: {reason}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The settings file that `WEBHOOKS_CONFIG` names cannot be read.
    #[error("settings file {} (WEBHOOKS_CONFIG) cannot be read", path.display())]
    FileRead {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The settings file is not TOML. The bad line is not quoted: it may hold a credential.
    #[error("settings file {} (WEBHOOKS_CONFIG): {reason}", path.display())]
    FileSyntax {
        /// The file.
        path: PathBuf,
        /// Where and what, as far as the parser says.
        reason: String,
    },
}

impl SettingsError {
    /// A value that another part of the program cannot use. `key` is written `section.key`. `reason` must not quote the
    /// value of a sensitive setting.
    pub fn invalid(key: &str, reason: impl Display) -> Self {
        Self::Invalid { key: Key::new(key), reason: reason.to_string() }
    }

    /// A setting, written `section.key`, that this process needs.
    pub fn missing(key: &str) -> Self {
        Self::Missing { keys: vec![Key::new(key)] }
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(keys: &[Key]) -> String {
    let names: Vec<_> = keys.iter().map(Key::to_string).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The name of a setting or a section, displayed as the file and the environment write it:
/// `egress.timeout (WEBHOOKS__EGRESS__TIMEOUT)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// As the file writes it: `section.key`.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = self.0.to_uppercase().replace('.', "__");
        let rest = if self.0.contains('.') { "" } else { "__*" };
        write!(f, "{} (WEBHOOKS__{variable}{rest})", self.0)
    }
}
