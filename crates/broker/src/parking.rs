//! Parked messages: the queues that only operators read, of rejected events, dead letters and unroutable messages.

use std::collections::BTreeMap;

use lapin::{
    Channel,
    options::{BasicGetOptions, BasicNackOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::{
    acks::Acks,
    broker::Broker,
    error::BrokerError,
    message::{Outgoing, Received},
};

/// A parked message.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Its body.
    pub body: Vec<u8>,
    /// Its headers with text values.
    pub headers: BTreeMap<String, String>,
}

impl Broker {
    /// Shows up to `most` messages of a queue, in order, and leaves them there. It fetches every message, however few
    /// it shows: a quorum queue requeues fetched messages behind the others.
    ///
    /// # Errors
    /// When the broker cannot be reached or has no such queue.
    pub async fn parked_list(&self, queue: &str, most: usize) -> Result<Vec<Parked>, BrokerError> {
        let (connection, channel) = self.connect("list").await?;
        let mut parked = Vec::new();
        let mut last = None;
        for _ in 0..present(&channel, queue).await? {
            let Some(message) = channel.basic_get(queue.into(), BasicGetOptions::default()).await? else { break };
            last = Some(message.delivery.acker);
            if parked.len() == most {
                continue;
            }
            let headers = message.delivery.properties.headers().clone().unwrap_or_default();
            let text = |(name, value): (&lapin::types::ShortString, &AMQPValue)| match value {
                AMQPValue::LongString(text) => Some((name.to_string(), text.to_string())),
                _ => None,
            };
            let headers = headers.inner().iter().filter_map(text).collect();
            parked.push(Parked { body: message.delivery.data, headers });
        }
        if let Some(last) = last {
            last.nack(BasicNackOptions { multiple: true, requeue: true }).await?;
        }
        connection.close(200, "bye".into()).await?;
        Ok(parked)
    }

    /// Removes messages from a queue for good, oldest first: up to `most`, or as many as are there at the start.
    /// Returns how many.
    ///
    /// # Errors
    /// When the broker fails; the other messages stay where they are.
    pub async fn parked_discard(&self, queue: &str, most: Option<usize>) -> Result<usize, BrokerError> {
        self.parked_take("discard", queue, None, most).await
    }

    /// Moves messages to another queue of the service, without their headers but for the trace of an event: up to
    /// `most`, or as many as are there at the start. Each is confirmed there before it is acknowledged here. Returns
    /// how many.
    ///
    /// # Errors
    /// When the broker fails; the other messages stay where they are.
    pub async fn parked_move(&self, from: &str, to: &str, most: Option<usize>) -> Result<usize, BrokerError> {
        self.parked_take("move", from, Some(to), most).await
    }

    async fn parked_take(
        &self,
        purpose: &str,
        from: &str,
        to: Option<&str>,
        most: Option<usize>,
    ) -> Result<usize, BrokerError> {
        let (connection, channel) = self.connect(purpose).await?;
        let stop = CancellationToken::new();
        let _stop_publisher = stop.clone().drop_guard();
        let to = to.map(|to| (to, self.publisher(stop)));
        let present = present(&channel, from).await?;
        let most = most.unwrap_or_else(|| usize::try_from(present).unwrap_or(usize::MAX));
        let acks = Acks::new(channel.clone(), self.stats(), Gauge::default());
        let mut taken = 0;
        while taken < most {
            let Some(message) = channel.basic_get(from.into(), BasicGetOptions::default()).await? else { break };
            let received = Received::new(message.delivery, &acks);
            if let Some((to, publisher)) = &to {
                let outgoing = Outgoing { queue: (*to).to_owned(), body: received.body, ..Default::default() };
                publisher.publish(&[outgoing.traced(received.traceparent.as_ref())]).await?;
            }
            received.acker.ack().await;
            taken += 1;
        }
        crate::broker::close(&connection).await;
        Ok(taken)
    }
}

/// How many messages of a queue are ready.
async fn present(channel: &Channel, queue: &str) -> Result<u32, BrokerError> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    Ok(channel.queue_declare(queue.into(), passive, FieldTable::default()).await?.message_count())
}
