//! The errors that end a start.

use broker::TaskPanicked;

use crate::SettingsError;

/// Why a service cannot start, or continue.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is missing or cannot be used, such as an address that is taken, or a pooler that shares the database's
    /// sessions.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The database's schema is too old.
    #[error(transparent)]
    Schema(#[from] SchemaTooOld),
    /// A task panicked that the service needs.
    #[error(transparent)]
    Panicked(#[from] TaskPanicked),
}

/// The database's schema is older than this program.
#[derive(Debug, thiserror::Error)]
#[error(
    "database.url (WEBHOOKS__DATABASE__URL): the database's schema is too old, {} missing: run `webhookctl migrate`",
    missing.join(", ")
)]
pub struct SchemaTooOld {
    /// The migrations that are missing.
    pub missing: Vec<String>,
}
