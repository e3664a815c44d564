//! The ledger's errors.

use std::time::Duration;

/// Why a call failed. The texts hold no values of rows.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The connection string is malformed.
    #[error("not a PostgreSQL connection string")]
    Url(#[source] tokio_postgres::Error),
    /// No connection could be had (the database is down or full), or it was lost during the call.
    #[error("no connection to the database")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database answers but takes no writes: a standby or a demoted primary. The connection is closed.
    #[error("the database is read-only")]
    ReadOnly,
    /// A pooler lends server connections by transaction or by statement. The leader's lock, prepared statements and
    /// settings need sessions of their own. The connection is closed.
    #[error(
        "several clients share this session of the database: a pooler lends its connections by transaction or by \
         statement; it must lend them by session (PgBouncer: pool_mode = session, server_reset_query = DISCARD ALL), \
         or the URL must lead to PostgreSQL itself"
    )]
    SharedSession,
    /// The leader's connection was lost while it was idle.
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
    /// A row holds a value unknown to this version.
    #[error("unreadable value in {column}")]
    Unreadable {
        /// Table and column.
        column: &'static str,
    },
}

impl LedgerError {
    /// Whether the connection is unusable. Otherwise only the call failed.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::ReadOnly | Self::SharedSession | Self::Lost | Self::Timeout(_))
    }

    /// The constraint that a statement violated.
    pub(crate) fn constraint(&self) -> Option<&str> {
        match self {
            Self::Query(diesel::result::Error::DatabaseError(_, violation)) => violation.constraint_name(),
            _ => None,
        }
    }
}
