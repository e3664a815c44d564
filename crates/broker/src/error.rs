//! Errors of connecting, consuming and publishing.

use std::time::Duration;

use domain::error_chain;
use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};
use tls::{Failure, FileError, Peer};

/// The broker cannot be reached, or it refuses something.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address is not usable. The text says why and holds no password.
    #[error("not an AMQP address: {0}")]
    Uri(String),
    /// A file of TLS, or the file with the password, cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Files of TLS are given, and no address uses it.
    #[error("no address of the broker begins with amqps://")]
    NoTls,
    /// An address holds a password, and a file for the password is given as well.
    #[error("an address of the broker holds a password, and a file for the password is given as well")]
    TwoPasswords,
    /// TLS with the broker failed.
    #[error("TLS with the broker failed: {0}")]
    Tls(Failure),
    /// The broker did not answer within the time given.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The broker did not answer a command's question within the time given.
    #[error(
        "the broker did not answer within {0:?}: run webhookctl doctor, and repeat the command once the broker answers; \
         messages that were not dealt with are still on their queue"
    )]
    Unanswered(Duration),
    /// The connection of a command ended at a message.
    #[error(
        "the connection ended when the next message of {0} was read: repeat the command once the broker is well; if it ends \
         again, webhookctl cannot read this message: look at the queue with the broker's tools, and then `rabbitmqctl purge_queue {0}` \
         removes what is still there"
    )]
    Unread(String),
    /// The node may have lost its disk or its cluster.
    #[error(
        "this node has none of the service's queues, and too few others answer to know that no node has them; start them, \
         or take those that are gone for good out of the list"
    )]
    Doubtful,
    /// A queue or an exchange exists with other arguments. The broker's words name it.
    #[error(
        "a queue or an exchange was declared differently, by another build or by somebody else: {0}; `webhookctl doctor` compares \
         them all: empty and delete what differs, and it is declared anew (on the local stack, `make clean` removes all)"
    )]
    Differs(String),
    /// The broker, or the connection to it, failed.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
    /// Publishing failed.
    #[error(transparent)]
    Publish(#[from] Unconfirmed),
}

impl BrokerError {
    /// The broker's words, if it refused for this reason.
    pub(crate) fn refusal(&self, reason: AMQPSoftError) -> Option<String> {
        let Self::Amqp(error) = self else { return None };
        match error.kind() {
            ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Soft(reason) => {
                Some(error.get_message().to_string())
            }
            _ => None,
        }
    }

    /// Returns true if the broker refused something in words of its own. lapin uses the other codes as well, such as for a
    /// frame that is too large.
    pub(crate) fn is_refusal(&self) -> bool {
        let Self::Amqp(error) = self else { return false };
        let ErrorKind::ProtocolError(error) = error.kind() else { return false };
        match error.kind() {
            AMQPErrorKind::Soft(_) => true,
            AMQPErrorKind::Hard(code) => matches!(
                code,
                AMQPHardError::CONNECTIONFORCED
                    | AMQPHardError::RESOURCEERROR
                    | AMQPHardError::NOTALLOWED
                    | AMQPHardError::INTERNALERROR
            ),
        }
    }

    /// Why a declaration failed: what exists has other arguments, or anything else.
    pub(crate) fn of_declaring(error: lapin::Error) -> Self {
        let error = Self::Amqp(error);
        error.refusal(AMQPSoftError::PRECONDITIONFAILED).map_or(error, Self::Differs)
    }

    /// Logs why the broker cannot be used, before the next try.
    pub(crate) fn warn(&self) {
        let error = error_chain(self);
        match self {
            Self::Differs(_) => tracing::warn!(error, "the broker has other queues than this service; trying again"),
            Self::Amqp(refused) if matches!(refused.kind(), ErrorKind::ProtocolError(_)) => {
                tracing::warn!(
                    error,
                    "broker.url (WEBHOOKS__BROKER__URL): the broker refuses this service; trying again"
                );
            }
            _ => {
                tracing::warn!(error, "broker.url (WEBHOOKS__BROKER__URL): the broker cannot be reached; trying again");
            }
        }
    }

    /// Why a connection was not made: TLS, or anything else.
    pub(crate) fn of_connecting(error: lapin::Error) -> Self {
        Failure::find(&error, Peer::Server).map_or(Self::Amqp(error), Self::Tls)
    }
}

/// The broker is not known to have some messages of one call. Keep their sources unacknowledged and publish them again.
/// The call's other messages are confirmed.
#[derive(Debug, thiserror::Error)]
#[error("{} of {all} messages are not confirmed, the first of them to {queue}", places.len())]
pub struct Unconfirmed {
    /// Their places among the messages of the call, ascending. There is at least one.
    pub places: Vec<usize>,
    /// How many messages the call had.
    pub all: usize,
    /// The queue of the first of them.
    pub queue: String,
    /// What became of the first of them.
    #[source]
    pub error: Box<PublishError>,
}

/// The broker is not known to have a message. Keep its source unacknowledged and publish it again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// There was no connection.
    #[error("not connected to the broker")]
    NotConnected,
    /// The confirm did not come in time. The message may or may not have arrived.
    #[error("no confirm within {0:?}")]
    Timeout(Duration),
    /// The broker is short of memory or disk and takes no messages.
    #[error("the broker takes no messages: it has blocked the connection")]
    Blocked,
    /// The broker refused the message: its queue is full or cannot take it.
    #[error("the broker refused a message")]
    Refused,
    /// No queue takes the message.
    #[error("no queue takes the routing key {0:?}")]
    Unroutable(String),
    /// The connection failed.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    #[test]
    fn what_the_broker_says_is_a_refusal_and_what_lapin_cannot_read_is_none() {
        for (kind, is_refusal) in [
            (AMQPSoftError::NOTFOUND.into(), true),
            (AMQPHardError::INTERNALERROR.into(), true),
            (AMQPHardError::RESOURCEERROR.into(), true),
            (AMQPHardError::FRAMEERROR.into(), false),
        ] {
            let error = AMQPError::new(kind, "words".into());
            let text = format!("{error:?}");
            let error = BrokerError::Amqp(ErrorKind::ProtocolError(error).into());
            assert_eq!(error.is_refusal(), is_refusal, "{text}");
        }
    }
}
