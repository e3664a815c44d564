//! Errors of servers, with the setting that holds their address.

use anyhow::Error;
use broker::BrokerError;
use ledger::LedgerError;

/// Any error may mean that it is the wrong broker, except that it has other queues or an unreadable message: these errors say
/// what to do.
pub(crate) fn broker<T>(result: Result<T, BrokerError>) -> anyhow::Result<T> {
    result.map_err(|error| match error {
        error @ (BrokerError::Differs(_) | BrokerError::Unread(_)) => error.into(),
        error => Error::new(error).context("broker.url (WEBHOOKS__BROKER__URL): the broker cannot be used"),
    })
}

/// Only an outage, a read-only database, a pooler and another build's database depend on the address.
pub(crate) fn database<T>(result: Result<T, LedgerError>) -> anyhow::Result<T> {
    result.map_err(|error| match error {
        error @ (LedgerError::Unavailable(_)
        | LedgerError::Tls(_)
        | LedgerError::ReadOnly
        | LedgerError::SharedSession
        | LedgerError::OtherBaseline) => Error::new(error).context("database.url (WEBHOOKS__DATABASE__URL)"),
        error @ LedgerError::PasswordFile(_) => {
            Error::new(error).context("database.password_file (WEBHOOKS__DATABASE__PASSWORD_FILE)")
        }
        error => error.into(),
    })
}
