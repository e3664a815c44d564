//! The driver's connection below diesel's, and why there is none.

use diesel::{ConnectionError, result::Error};
use tokio_postgres::{Connection, Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::LedgerError;

/// A connection that nothing but the driver below diesel has used yet.
pub(crate) type Driver = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Diesel's only error of a connection that holds another error. [`reason`] finds it there.
pub(crate) fn not_connected(reason: LedgerError) -> ConnectionError {
    ConnectionError::CouldntSetupConfiguration(Error::QueryBuilderError(reason.into()))
}

/// Why a connection was not made, if that is known.
pub(crate) fn reason(error: &ConnectionError) -> Option<&LedgerError> {
    match error {
        ConnectionError::CouldntSetupConfiguration(Error::QueryBuilderError(reason)) => reason.downcast_ref(),
        _ => None,
    }
}
