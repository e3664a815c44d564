//! How many messages wait on a queue.

use lapin::{Channel, Connection, ErrorKind, options::QueueDeclareOptions, protocol::AMQPErrorKind, types::FieldTable};

use crate::{
    error::BrokerError,
    link::{Broker, farewell, in_time},
};

impl Broker {
    /// How many messages of a queue are ready: neither handed out nor waiting to be dead-lettered. `None` when there is
    /// no such queue. All clones share one connection, made at the first query and after a failure.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn depth(&self, queue: &str) -> Result<Option<u32>, BrokerError> {
        let mut kept = self.shared.depths.lock().await;
        // Taken out, so that a connection that fails, or whose query is given up, is not reused.
        let (connection, channel) = match kept.take() {
            Some((connection, channel)) if connection.status().connected() => (connection, channel),
            _ => self.connect("depth").await?,
        };
        let (depth, channel) = in_time(ready(&connection, channel, queue)).await?;
        *kept = Some((connection, channel));
        Ok(depth)
    }

    /// Closes that connection, if there is one. A further query opens another.
    pub async fn depths_close(&self) {
        if let Some((connection, _channel)) = self.shared.depths.lock().await.take() {
            farewell(&connection).await;
        }
    }
}

/// Returns the channel too, as asking for a queue that does not exist closes the channel.
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
