//! Servers that do not answer, with the setting that says where they should be.

use anyhow::Error;
use broker::BrokerError;
use ledger::LedgerError;

/// Whatever goes wrong with the broker has to do with which broker it is.
pub(crate) fn broker<T>(result: Result<T, BrokerError>) -> anyhow::Result<T> {
    result.map_err(|error| Error::new(error).context("broker.url (WEBHOOKS__BROKER__URL): the broker cannot be used"))
}

/// A statement that failed is not a matter of the address.
pub(crate) fn database<T>(result: Result<T, LedgerError>) -> anyhow::Result<T> {
    result.map_err(|error| match error {
        error @ (LedgerError::Unavailable(_) | LedgerError::ReadOnly) => {
            Error::new(error).context("database.url (WEBHOOKS__DATABASE__URL)")
        }
        error => error.into(),
    })
}
