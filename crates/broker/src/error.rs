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
    Publish(#[from] PublishError),
}

/// A message is not known to be with the broker: keep its source unacknowledged and publish it again.
#[derive(Debug, thiserror::Error)]
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
    /// The broker refused the message.
    #[error("the broker refused a message")]
    Refused,
    /// No queue takes the message.
    #[error("no queue takes the routing key {0:?}")]
    Unroutable(String),
    /// The connection failed.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
}
