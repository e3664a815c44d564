//! Parked messages: the queues that only operators read, of rejected events, dead letters and unroutable messages.

use std::collections::BTreeMap;

use lapin::{
    Channel, Connection,
    message::BasicGetMessage,
    options::{BasicGetOptions, BasicNackOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::{
    acks::Acks,
    broker::{Broker, close_unused, in_time},
    error::BrokerError,
    message::{Acker, Outgoing, Received},
};

/// A parked message.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Its body.
    pub body: Vec<u8>,
    /// Its headers with text values.
    pub headers: BTreeMap<String, String>,
    /// The broker's own reason, if the broker parked the message.
    pub moved: Option<Moved>,
}

/// The broker's latest move of a message, by its header `x-death`. It is for people: attempts are counted by job and
/// ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The broker's word, such as `delivery_limit` or `expired`.
    pub reason: String,
    /// The queue from which the message was moved.
    pub queue: String,
    /// The routing key that the message had there.
    pub routing_key: Option<String>,
    /// The time of the move, in Unix seconds.
    pub at: Option<u64>,
}

impl Moved {
    /// Reads the first entry, which is the latest.
    fn read(headers: &FieldTable) -> Option<Self> {
        let entry = headers.inner().get("x-death")?.as_array()?.as_slice().first()?.as_field_table()?.inner();
        let text_of = |name: &str| entry.get(name).and_then(text);
        Some(Self {
            reason: text_of("reason")?,
            queue: text_of("queue")?,
            routing_key: entry.get("routing-keys").and_then(|keys| text(keys.as_array()?.as_slice().first()?)),
            at: entry.get("time").and_then(AMQPValue::as_timestamp),
        })
    }

    /// The reason in words.
    pub fn detail(&self) -> String {
        let Self { reason, queue, .. } = self;
        match reason.as_str() {
            "delivery_limit" => format!(
                "the broker delivered it from {queue} as often as that queue allows, and it was never acknowledged"
            ),
            "expired" => format!("it expired on {queue}: the time to live of the queue or of a policy is over"),
            "maxlen" => format!("{queue} was full: a policy limits that queue"),
            "rejected" => format!("a consumer of {queue} rejected it"),
            _ => format!("the broker moved it from {queue}"),
        }
    }
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    }
}

impl Broker {
    /// Shows up to `most` messages of a queue, in order, and leaves them there.
    ///
    /// # Errors
    /// When the broker cannot be reached or has no such queue.
    pub async fn parked_list(&self, queue: &str, most: usize) -> Result<Vec<Parked>, BrokerError> {
        let mut reading = self.parked_read(queue, most, |_| true).await?;
        let parked = std::mem::take(&mut reading.parked);
        reading.release().await?;
        Ok(parked)
    }

    /// Reads the messages that are on a queue now, and holds them: nobody else gets them until [`Reading::release`] or
    /// [`Reading::discard`]. Of those that `is_wanted` accepts, it keeps the oldest ones, `most` at most. It fetches every
    /// message, however few it keeps: a quorum queue requeues fetched messages behind the others.
    ///
    /// # Errors
    /// When the broker cannot be reached or has no such queue.
    pub async fn parked_read(
        &self,
        queue: &str,
        most: usize,
        mut is_wanted: impl FnMut(&Parked) -> bool,
    ) -> Result<Reading, BrokerError> {
        let (connection, channel) = answered(self.connect("read")).await?;
        let acks = Acks::new(channel.clone(), self.stats(), Gauge::default());
        let mut reading = Reading { connection, channel, parked: Vec::new(), kept: Vec::new() };
        for _ in 0..present(&reading.channel, queue).await? {
            let Some(mut message) = get(&reading.channel, queue).await? else { break };
            let headers = message.delivery.properties.headers().clone().unwrap_or_default();
            let moved = Moved::read(&headers);
            let headers = headers.inner().iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
            let body = std::mem::take(&mut message.delivery.data);
            let parked = Parked { body, headers: headers.collect(), moved };
            if is_wanted(&parked) && reading.parked.len() < most {
                reading.parked.push(parked);
                reading.kept.push(Received::new(message.delivery, &acks).acker);
            }
        }
        Ok(reading)
    }

    /// Moves messages to other queues of the service, each by the routing key that `to` names for its body, without their
    /// headers except for the trace of an event: up to `most`, or as many as are there at the start. Each is confirmed
    /// there before it is acknowledged here. Returns how many.
    ///
    /// # Errors
    /// When the broker fails; the other messages stay where they are.
    pub async fn parked_move(
        &self,
        from: &str,
        to: impl Fn(&[u8]) -> String,
        most: Option<usize>,
    ) -> Result<usize, BrokerError> {
        let (connection, channel) = answered(self.connect("move")).await?;
        let stop = CancellationToken::new();
        let _stop_publisher = stop.clone().drop_guard();
        let publisher = self.publisher(stop);
        let present = present(&channel, from).await?;
        let most = most.unwrap_or_else(|| usize::try_from(present).unwrap_or(usize::MAX));
        let acks = Acks::new(channel.clone(), self.stats(), Gauge::default());
        let mut taken = 0;
        while taken < most {
            let Some(message) = get(&channel, from).await? else { break };
            let received = Received::new(message.delivery, &acks);
            let outgoing = Outgoing { routing_key: to(&received.body), body: received.body, ..Default::default() };
            publisher.publish(&[outgoing.traced(received.traceparent.as_ref())]).await?;
            Acker::ack_all(vec![received.acker]).await;
            taken += 1;
        }
        crate::broker::close(&connection).await;
        Ok(taken)
    }
}

/// Messages of a queue that were read and are not acknowledged. When this is dropped, the broker requeues them.
pub struct Reading {
    connection: Connection,
    channel: Channel,
    parked: Vec<Parked>,
    kept: Vec<Acker>,
}

impl Reading {
    /// The messages that were kept, oldest first.
    pub fn parked(&self) -> &[Parked] {
        &self.parked
    }

    /// Returns every message to the queue.
    ///
    /// # Errors
    /// When the broker fails; it requeues them by itself then.
    pub async fn release(self) -> Result<(), BrokerError> {
        self.requeue_held().await?;
        close_unused(&self.connection).await;
        Ok(())
    }

    /// Removes the messages that were kept from the queue permanently, and returns the others to it. Returns how many were
    /// removed.
    ///
    /// # Errors
    /// When the broker fails: some may be gone, and the others are requeued.
    pub async fn discard(mut self) -> Result<usize, BrokerError> {
        let count = self.kept.len();
        Acker::ack_all(std::mem::take(&mut self.kept)).await;
        self.requeue_held().await?;
        crate::broker::close(&self.connection).await;
        Ok(count)
    }

    async fn requeue_held(&self) -> Result<(), BrokerError> {
        // The tag 0 stands for everything that is not acknowledged.
        let requeue = BasicNackOptions { multiple: true, requeue: true };
        answered(async { Ok(self.channel.basic_nack(0, requeue).await?) }).await
    }
}

/// How many messages of a queue are ready.
async fn present(channel: &Channel, queue: &str) -> Result<u32, BrokerError> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    answered(async { Ok(channel.queue_declare(queue.into(), passive, FieldTable::default()).await?.message_count()) })
        .await
}

/// The queue's next message. A message that lapin cannot read ends the connection.
async fn get(channel: &Channel, queue: &str) -> Result<Option<BasicGetMessage>, BrokerError> {
    let got = answered(async { Ok(channel.basic_get(queue.into(), BasicGetOptions::default()).await?) }).await;
    got.map_err(|error| match error {
        BrokerError::Amqp(_) if !error.is_refusal() => BrokerError::Unread(queue.to_owned()),
        _ => error,
    })
}

/// Runs a step of a command. The error of its deadline says what the operator can do.
async fn answered<T>(step: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
    in_time(step).await.map_err(|error| match error {
        BrokerError::Timeout(limit) => BrokerError::Unanswered(limit),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in entries {
            table.insert(name.into(), value);
        }
        table
    }

    fn death(reason: &str, queue: &str, key: &str) -> AMQPValue {
        AMQPValue::FieldTable(table([
            ("count", AMQPValue::LongLongInt(3)),
            ("reason", AMQPValue::LongString(reason.into())),
            ("queue", AMQPValue::LongString(queue.into())),
            ("time", AMQPValue::Timestamp(1_772_000_000)),
            ("routing-keys", AMQPValue::FieldArray(vec![AMQPValue::LongString(key.into())].into())),
        ]))
    }

    #[test]
    fn what_the_broker_parked_has_the_words_of_its_latest_move() {
        // A retry that expired as it should, and then was delivered too often.
        let deaths = [death("delivery_limit", "w.deliveries", "w.deliveries"), death("expired", "w.retry.60s", "key")];
        let headers = table([("x-death", AMQPValue::FieldArray(deaths.to_vec().into()))]);
        let moved = Moved::read(&headers).unwrap();
        assert_eq!((moved.reason.as_str(), moved.queue.as_str()), ("delivery_limit", "w.deliveries"));
        assert_eq!((moved.routing_key.as_deref(), moved.at), (Some("w.deliveries"), Some(1_772_000_000)));
        assert!(moved.detail().contains("as often as that queue allows"), "{}", moved.detail());
        let moved = Moved { reason: "expired".to_owned(), queue: "w.events".to_owned(), ..moved };
        assert!(moved.detail().contains("expired on w.events"), "{}", moved.detail());
        let moved = Moved { reason: "newer".to_owned(), ..moved };
        assert_eq!(moved.detail(), "the broker moved it from w.events");
    }

    #[test]
    fn a_header_of_another_shape_names_no_move() {
        for value in [
            AMQPValue::LongString("x".into()),
            AMQPValue::FieldArray(Vec::new().into()),
            AMQPValue::FieldArray(vec![AMQPValue::Void].into()),
            AMQPValue::FieldArray(vec![AMQPValue::FieldTable(FieldTable::default())].into()),
        ] {
            assert_eq!(Moved::read(&table([("x-death", value.clone())])), None, "{value:?}");
        }
        assert_eq!(Moved::read(&FieldTable::default()), None);
    }
}
