//! How many messages wait on a queue.

use lapin::{Channel, Connection, ErrorKind, options::QueueDeclareOptions, protocol::AMQPErrorKind, types::FieldTable};
use tokio::sync::Mutex;

use crate::{
    error::BrokerError,
    link::{Broker, in_time},
};

/// The connection over which depths are asked for, kept from one question to the next, as connecting costs more than
/// asking. One question at a time.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<(Connection, Channel)>>);

impl Broker {
    /// How many messages of a queue are ready: neither handed out nor waiting to be dead-lettered. `None` when there is
    /// no such queue. All clones ask over one connection, made at the first question and after a failure.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn depth(&self, queue: &str) -> Result<Option<u32>, BrokerError> {
        let mut kept = self.shared.depths.0.lock().await;
        // Taken out: what fails, or is given up half-way, is not asked again.
        let (connection, channel) = match kept.take() {
            Some((connection, channel)) if connection.status().connected() => (connection, channel),
            _ => self.connect("depth").await?,
        };
        let (depth, channel) = in_time(ready(&connection, channel, queue)).await?;
        *kept = Some((connection, channel));
        Ok(depth)
    }
}

/// A queue that does not exist costs the channel.
async fn ready(
    connection: &Connection,
    mut channel: Channel,
    queue: &str,
) -> Result<(Option<u32>, Channel), BrokerError> {
    if !channel.status().connected() {
        channel = connection.create_channel().await?;
    }
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    match channel.queue_declare(queue.into(), passive, FieldTable::default()).await {
        Ok(queue) => Ok((Some(queue.message_count()), channel)),
        Err(error) if is_not_found(&error) => Ok((None, channel)),
        Err(error) => Err(error.into()),
    }
}

fn is_not_found(error: &lapin::Error) -> bool {
    use lapin::protocol::AMQPSoftError::NOTFOUND;
    matches!(error.kind(), ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Soft(NOTFOUND))
}
