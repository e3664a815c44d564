//! Classifies a failure by the types of its errors.

use std::{io, time::Duration};

use domain::OutcomeClass;
use hyper_util::client::legacy;

use crate::{
    causes::{find, io_kind},
    connect_error::ConnectError,
    failure_messages,
    limited::limited,
};

/// Why there is no status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The deadline passed.
    Timeout,
    /// This part of the request cannot be written. URL and headers are checked earlier, so it is not expected.
    Unwritable(&'static str),
    /// There is no connection, or it broke.
    Client(legacy::Error),
}

impl Failure {
    /// The outcome class, and the failure message for the webhook's administrator.
    pub(crate) fn verdict(&self, timeout: Duration) -> (OutcomeClass, String) {
        let error = match self {
            Self::Timeout => return (OutcomeClass::Timeout, failure_messages::timeout(timeout)),
            Self::Unwritable(what) => {
                return (OutcomeClass::Protocol, format!("the webhook's {what} cannot be sent over HTTP"));
            }
            Self::Client(error) => error,
        };
        if let Some(error) = find::<ConnectError>(error) {
            return connect(error, timeout);
        }
        if let Some(failure) = tls::Failure::find(error, tls::Peer::Receiver) {
            return (OutcomeClass::Tls, limited(failure));
        }
        (OutcomeClass::Protocol, failure_messages::protocol(find(error), io_kind(error)))
    }

    /// Returns whether the request was not sent, as no descriptor was left.
    pub(crate) fn is_without_descriptor(&self) -> bool {
        let Self::Client(error) = self else { return false };
        find(error).is_some_and(ConnectError::is_without_descriptor)
    }

    /// Returns whether the connection broke, or gave no HTTP/1.1, before there was a status.
    pub(crate) fn is_break(&self) -> bool {
        let Self::Client(error) = self else { return false };
        let ended = find(error).is_some_and(|error: &hyper::Error| error.is_incomplete_message() || error.is_parse());
        ended || io_kind(error).is_some_and(failure_messages::is_broken)
    }
}

fn connect(error: &ConnectError, timeout: Duration) -> (OutcomeClass, String) {
    let class = match error {
        // A name that leads to refused addresses only is reported like one that leads nowhere.
        ConnectError::InvalidName { .. } | ConnectError::Unresolved { .. } | ConnectError::RefusedName { .. } => {
            OutcomeClass::Dns
        }
        ConnectError::RefusedHost(_) | ConnectError::RefusedPort(_) | ConnectError::RefusedLiteral(_) => {
            OutcomeClass::RefusedAddress
        }
        ConnectError::Tcp { source, .. } if source.kind() == io::ErrorKind::TimedOut => OutcomeClass::Timeout,
        ConnectError::Tcp { .. } => OutcomeClass::Connect,
        ConnectError::Slow => OutcomeClass::Timeout,
        ConnectError::Tls(_) => OutcomeClass::Tls,
    };
    (class, failure_messages::connect(error, timeout))
}
