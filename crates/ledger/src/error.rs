//! The ledger's errors.

use std::time::Duration;

use tls::{Failure, FileError, Role};

/// Why a call failed. The texts hold no values of rows.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The connection string is malformed.
    #[error("not a PostgreSQL connection string")]
    Url(#[source] tokio_postgres::Error),
    /// The connection string asks for TLS in a way that is not possible.
    #[error(transparent)]
    TlsOption(#[from] TlsOptionError),
    /// The connection string has an option of TLS that contradicts a file that is given apart from it. The text holds no
    /// value.
    #[error("the connection string has {option}, and a file of TLS is given as well")]
    TlsTwice {
        /// The file.
        setting: Role,
        /// The option.
        option: &'static str,
    },
    /// A file of TLS that is given apart from the connection string cannot be used.
    #[error(transparent)]
    TlsFile(FileError),
    /// The connection string holds a password, and a file for the password is given as well.
    #[error("the connection string holds a password, and a file for the password is given as well")]
    TwoPasswords,
    /// No connection could be had, as the password's file cannot be used.
    #[error("the file with the database's password cannot be used: {0}")]
    PasswordFile(FileError),
    /// No connection could be had, as TLS failed.
    #[error("TLS with the database failed: {0}")]
    Tls(Failure),
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
    /// A statement failed by a row's own data, and fails again with it.
    #[error("the database does not take a row's data (SQLSTATE {sqlstate})")]
    Row {
        /// The code of the server's error.
        sqlstate: String,
    },
    /// Migrations failed.
    #[error("the migrations failed")]
    Migration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A build with another baseline of the schema made the database.
    #[error(
        "a build with another baseline of the schema made this database, and nothing converts it: create an empty one, \
         run `webhookctl migrate`, and empty the broker's virtual host (in development: `deploy/local/stack destroy`, \
         then `make up`)"
    )]
    OtherBaseline,
    /// No release has this name.
    #[error("there is no such release of the service: this program knows {known}")]
    UnknownRelease {
        /// The names of the releases, separated by commas.
        known: String,
    },
    /// The database's schema is not one that this program can take back to a release.
    #[error("the schema cannot go back: {0}")]
    NoWayBack(String),
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

/// A connection string asks for TLS in a way that is not possible. The texts hold no value but a file's path.
#[derive(Debug, thiserror::Error)]
pub enum TlsOptionError {
    /// A mode of libpq that does not verify the server, or a word that is none.
    #[error("sslmode{0} is not possible: write disable, or verify-full (require means the same here)")]
    Mode(&'static str),
    /// A file is given, but no TLS asked for.
    #[error("{0} is given without sslmode=verify-full")]
    WithoutMode(&'static str),
    /// A client certificate without its key, or the other way around.
    #[error("sslcert and sslkey are needed together")]
    Half,
    /// A file cannot be used.
    #[error("{option}: {0}", option = option_of(.0.role))]
    File(FileError),
    /// There is no name to verify.
    #[error("hostaddr needs host beside it: the name that the server's certificate is verified for")]
    NoName,
    /// Some hosts are directories of sockets, where TLS does not exist.
    #[error("hosts with TLS and directories of sockets cannot be in one list")]
    Sockets,
}

const fn option_of(role: Role) -> &'static str {
    match role {
        Role::Authorities => "sslrootcert",
        Role::Certificate => "sslcert",
        Role::Key => "sslkey",
        Role::Password => "password",
    }
}

impl LedgerError {
    /// Whether the connection is unusable. Otherwise only the call failed.
    pub const fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::PasswordFile(_)
                | Self::Tls(_)
                | Self::ReadOnly
                | Self::SharedSession
                | Self::Lost
                | Self::Timeout(_)
        )
    }

    /// Returns true if the call may have taken effect, or still may: nothing came back before its time was over, or before
    /// its connection was lost. A call that got no connection has done nothing.
    pub fn is_unconfirmed(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Unavailable(cause) => cause.is::<diesel::result::Error>(),
            _ => false,
        }
    }

    /// The fault of a row, if this is an error of the row's own data: the same call without the row may succeed.
    pub fn of_row(&self) -> Option<String> {
        match self {
            Self::Row { sqlstate } => Some(format!("the database does not take its data (SQLSTATE {sqlstate})")),
            Self::Unreadable { column } => Some(format!("this version cannot read {column}")),
            Self::Query(diesel::result::Error::DeserializationError(_)) => {
                Some("this version cannot read a value of its row".to_owned())
            }
            Self::Query(diesel::result::Error::SerializationError(_)) => {
                Some("this version cannot write a value of its row".to_owned())
            }
            _ => None,
        }
    }

    /// Returns true if this version does not know a value of a row: a later version has stored it.
    pub const fn is_of_later_version(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Query(diesel::result::Error::DeserializationError(_)))
    }

    /// Returns true if another of the tenant's webhooks has the external id.
    pub fn is_external_id_taken(&self) -> bool {
        self.constraint() == Some("webhooks_by_external_id")
    }

    /// The constraint that a statement violated.
    pub(crate) fn constraint(&self) -> Option<&str> {
        match self {
            Self::Query(diesel::result::Error::DatabaseError(_, violation)) => violation.constraint_name(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_answer_may_have_taken_effect_and_one_without_a_connection_has_not() {
        for unconfirmed in [
            LedgerError::Timeout(Duration::from_secs(1)),
            LedgerError::Unavailable(diesel::result::Error::BrokenTransactionManager.into()),
        ] {
            assert!(unconfirmed.is_unconfirmed(), "{unconfirmed:?}");
        }
        for nothing_done in [
            LedgerError::Unavailable("no connection in time".into()),
            LedgerError::ReadOnly,
            LedgerError::Query(diesel::result::Error::NotFound),
        ] {
            assert!(!nothing_done.is_unconfirmed(), "{nothing_done:?}");
        }
    }
}
