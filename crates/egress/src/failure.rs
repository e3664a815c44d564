//! What kind of failure an error is, by its types.

use std::{io, time::Duration};

use domain::OutcomeClass;
use hyper_util::client::legacy;

use crate::{
    causes::{find, find_tls, io_kind},
    connect_error::ConnectError,
    failure_messages,
    guarded::Traffic,
};

/// Why there is no status.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The deadline passed.
    Timeout,
    /// This part of the request cannot be written. The form of both is checked before, so it is not expected.
    Unwritable(&'static str),
    /// No connection, or one that broke.
    Client(legacy::Error),
}

impl Failure {
    /// The class, and the words for the webhook's administrator.
    pub(crate) fn verdict(&self, timeout: Duration) -> (OutcomeClass, String) {
        let error = match self {
            Self::Timeout => return (OutcomeClass::Timeout, failure_messages::timeout(timeout)),
            Self::Unwritable(what) => {
                return (OutcomeClass::Protocol, format!("the webhook's {what} cannot be sent over HTTP"));
            }
            Self::Client(error) => error,
        };
        if let Some(fault) = find::<ConnectError>(error) {
            return connect(fault, timeout);
        }
        if let Some(error) = find_tls(error) {
            return (OutcomeClass::Tls, failure_messages::tls(error));
        }
        (OutcomeClass::Protocol, failure_messages::protocol(find(error), io_kind(error)))
    }

    /// Whether a connection that had been reused broke before any byte of an answer came: most likely the receiver
    /// closed it at the moment in which we sent the request.
    pub(crate) fn is_of_a_stale_connection(&self) -> bool {
        let Self::Client(error) = self else { return false };
        let mut extras = hyper::http::Extensions::new();
        if let Some(info) = error.connect_info() {
            info.get_extras(&mut extras);
        }
        let unanswered = extras.get::<Traffic>().is_some_and(Traffic::is_reused_and_unanswered);
        let incomplete = find::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message);
        let broken = io_kind(error).is_some_and(failure_messages::is_broken);
        unanswered && (incomplete || broken)
    }
}

fn connect(fault: &ConnectError, timeout: Duration) -> (OutcomeClass, String) {
    let class = match fault {
        // A name that leads to refused addresses only is told like one that leads nowhere.
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
    (class, failure_messages::connect(fault, timeout))
}
