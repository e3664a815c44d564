//! How many messages wait on a queue.

use lapin::{
    Channel, Connection,
    options::{BasicGetOptions, BasicNackOptions},
};

use crate::{
    broker::{Broker, close_unused, in_time},
    error::BrokerError,
    presence::find,
};

/// The messages and consumers of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that no consumer has.
    pub ready: u32,
    /// Consumers.
    pub consumers: u32,
}

impl Broker {
    /// The number of ready messages of a queue: neither delivered nor waiting to be dead-lettered. `None` when there is
    /// no such queue. Zero may mean that the queue's leader does not answer. All clones share one connection, made at
    /// the first query and after a failure.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn depth(&self, queue: &str) -> Result<Option<u32>, BrokerError> {
        Ok(self.queue_depth(queue).await?.map(|depth| depth.ready))
    }

    /// The same, with proof of a zero. RabbitMQ counts zero messages if a queue's leader does not answer within 250 ms,
    /// or has been replaced without knowing it, but names no consumer then: a zero beside a consumer counts. Without a
    /// consumer it counts only if a message is asked for and there is none: that takes more than half of the queue's
    /// members. A message that has just come is returned.
    ///
    /// # Errors
    /// When the broker cannot be reached, or the queue has neither a consumer nor a leader that answers.
    pub async fn depth_shown(&self, queue: &str) -> Result<Option<u32>, BrokerError> {
        self.query(async |connection, channel| {
            let (found, channel) = find(connection, channel, queue).await?;
            let depth = match found.map(|queue| (queue.message_count(), queue.consumer_count())) {
                Some((0, 0)) => Some(first_and_rest(&channel, queue).await?),
                found => found.map(|(ready, _)| ready),
            };
            Ok((depth, channel))
        })
        .await
    }

    /// The ready messages and the consumers of a queue. `None` when there is no such queue. The messages are proven if
    /// there is a consumer: see [`Broker::depth_shown`].
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn queue_depth(&self, queue: &str) -> Result<Option<QueueDepth>, BrokerError> {
        self.query(async |connection, channel| {
            let (found, channel) = find(connection, channel, queue).await?;
            let depth =
                found.map(|queue| QueueDepth { ready: queue.message_count(), consumers: queue.consumer_count() });
            Ok((depth, channel))
        })
        .await
    }

    /// Closes that connection, if there is one. A further query opens another.
    pub async fn depths_close(&self) {
        if let Some((connection, _channel)) = self.context.depths.lock().await.take() {
            close_unused(&connection).await;
        }
    }

    /// Asks on that connection.
    pub(crate) async fn query<T>(
        &self,
        ask: impl AsyncFnOnce(&Connection, Channel) -> Result<(T, Channel), BrokerError>,
    ) -> Result<T, BrokerError> {
        let mut kept = self.context.depths.lock().await;
        // Taken out, so that a connection that fails, or whose query is given up, is not reused.
        let (connection, channel) = match kept.take() {
            Some((connection, channel)) if connection.status().connected() => (connection, channel),
            _ => self.connect("depth").await?,
        };
        let (answer, channel) = in_time(ask(&connection, channel)).await?;
        *kept = Some((connection, channel));
        Ok(answer)
    }
}

/// Counts messages by getting one, and gives it back.
async fn first_and_rest(channel: &Channel, queue: &str) -> Result<u32, BrokerError> {
    let Some(message) = channel.basic_get(queue.into(), BasicGetOptions::default()).await? else { return Ok(0) };
    let back = BasicNackOptions { requeue: true, ..Default::default() };
    channel.basic_nack(message.delivery.delivery_tag, back).await?;
    Ok(message.message_count.saturating_add(1))
}
