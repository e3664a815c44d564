//! The settings that all processes share. They are checked before anything else happens.
//!
//! Environment variables `WEBHOOKS__SECTION__KEY` win over an optional TOML file, named by `WEBHOOKS_CONFIG`. The file
//! wins over the built-in defaults. Unknown or unusable settings are refused, with the key in both spellings.

mod draft;
mod error;
mod parse;
mod sections;
mod sensitive;
mod sources;
mod tree;

use std::{collections::HashMap, path::Path};

use serde::Deserialize;
use url::Url;

pub use draft::Draft;
pub use error::{Key, SettingsError};
pub use sections::{
    Api, Broker, Console, Database, Dispatcher, Egress, Ingest, Limits, Log, LogFormat, Notices, Ops, Reconcile,
    Retention, Retry, Secrets, SessionBackEnd, Shutdown, Signing, Traces,
};
pub use sensitive::Sensitive;

/// Every setting, one field per section. A process ignores sections that it has no use for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each section's type says what it is for")]
pub struct Settings {
    pub database: Database,
    pub broker: Broker,
    pub api: Api,
    pub console: Console,
    pub ops: Ops,
    pub secrets: Secrets,
    pub signing: Signing,
    pub retry: Retry,
    pub egress: Egress,
    pub dispatcher: Dispatcher,
    pub ingest: Ingest,
    pub reconcile: Reconcile,
    pub retention: Retention,
    pub notices: Notices,
    pub limits: Limits,
    pub shutdown: Shutdown,
    pub traces: Traces,
    pub log: Log,
}

impl Settings {
    /// Reads the settings of this process from its environment and the file that `WEBHOOKS_CONFIG` names, if any.
    ///
    /// # Errors
    /// All settings that are missing, or the first of other [`SettingsError`]s.
    pub fn load() -> Result<Self, SettingsError> {
        Draft::load().complete()
    }

    /// The same from sources that the caller supplies. Ignores variables that do not begin with `WEBHOOKS__`.
    ///
    /// # Errors
    /// All settings that are missing, or the first of other [`SettingsError`]s.
    pub fn from_sources(file: Option<&Path>, env: HashMap<String, String>) -> Result<Self, SettingsError> {
        Draft::from_sources(file, env).complete()
    }

    /// The keys that seal signing secrets, for the processes that need them.
    ///
    /// # Errors
    /// [`SettingsError::Missing`] when `secrets.keys` is not set.
    pub fn secret_keys(&self) -> Result<&str, SettingsError> {
        match &self.secrets.keys {
            Some(keys) => Ok(keys.expose()),
            None => Err(SettingsError::missing("secrets.keys")),
        }
    }

    /// Where to ask for sessions when `api.sessions` is `introspection`.
    ///
    /// # Errors
    /// [`SettingsError::Missing`] when `api.introspection_url` is not set.
    pub fn introspection_url(&self) -> Result<&Url, SettingsError> {
        self.api.introspection_url.as_ref().ok_or_else(|| SettingsError::missing("api.introspection_url"))
    }
}
