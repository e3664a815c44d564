//! Why the ledger did not answer.

use std::time::Duration;

/// A failed call. Texts hold no values of rows.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The connection string is not usable.
    #[error("not a PostgreSQL connection string")]
    Url(#[source] tokio_postgres::Error),
    /// No connection could be had: the database is away or full.
    #[error("no connection to the database")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database answers and takes no writes: a standby, or a primary that was demoted. The connection is closed.
    #[error("the database is read-only")]
    ReadOnly,
    /// The leader's connection was lost while nothing was asked over it.
    #[error("the leader's connection is lost")]
    Lost,
    /// The database did not answer in time.
    #[error("the database did not answer within {0:?}")]
    Timeout(Duration),
    /// A statement failed.
    #[error("a statement failed")]
    Query(#[from] diesel::result::Error),
    /// Migrations failed.
    #[error("the migrations failed")]
    Migration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A secret cannot be sealed.
    #[error("the system has no randomness")]
    Randomness,
    /// A row holds what this version does not know.
    #[error("unreadable value in {column}")]
    Unreadable {
        /// Table and column.
        column: &'static str,
    },
}

impl LedgerError {
    /// Whether the connection is of no more use, rather than one statement wrong.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::ReadOnly | Self::Lost | Self::Timeout(_))
    }
}
