//! What can go wrong with the broker.

use std::time::Duration;

/// The broker cannot be reached or refuses something.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address is not usable; the text says why and holds no password.
    #[error("not an AMQP address: {0}")]
    Uri(String),
    /// The broker did not answer within the time given.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The broker, or the connection to it, failed.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
    /// Publishing failed.
    #[error(transparent)]
    Publish(#[from] Unconfirmed),
}

/// Messages of one call that are not known to be with the broker: keep their sources unacknowledged and publish them again.
/// The call's other messages are confirmed.
#[derive(Debug, thiserror::Error)]
#[error("{} of {all} messages are not confirmed, the first of them to {queue}", places.len())]
pub struct Unconfirmed {
    /// Their places among the messages of the call, ascending; at least one.
    pub places: Vec<usize>,
    /// How many messages the call had.
    pub all: usize,
    /// The queue of the first.
    pub queue: String,
    /// What became of the first.
    #[source]
    pub error: Box<PublishError>,
}

/// A message is not known to be with the broker: keep its source unacknowledged and publish it again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// There was no connection.
    #[error("not connected to the broker")]
    NotConnected,
    /// The confirm did not come in time: the message may or may not have arrived.
    #[error("no confirm within {0:?}")]
    Timeout(Duration),
    /// The broker takes no messages for now, for want of memory or disk.
    #[error("the broker takes no messages: it has blocked the connection")]
    Blocked,
    /// The broker refused the message: its queue is full, or cannot take it.
    #[error("the broker refused a message")]
    Refused,
    /// No queue takes the message.
    #[error("no queue takes the routing key {0:?}")]
    Unroutable(String),
    /// The connection failed.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
}
