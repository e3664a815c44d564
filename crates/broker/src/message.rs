//! Messages to and from the broker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::Traceparent;
use futures_util::future::join_all;
use lapin::{
    BasicProperties,
    message::Delivery,
    types::{AMQPValue, FieldTable},
};
use uuid::Uuid;

use crate::{acks::Acks, stats::Unacknowledged};

/// The maximum of characters of a header's value. All headers must fit into one frame, or the broker closes the connection.
const MAX_HEADER_CHARS: usize = 1000;

/// The broker's count of redeliveries. It is absent at the first receipt.
const REDELIVERY_COUNT_HEADER: &str = "x-delivery-count";
/// The number of deliveries of a message by the broker before this service moved it to another queue.
const CARRIED_COUNT_HEADER: &str = "x-handed-out";
/// Marks messages of jobs that take the bulk lane, so that their retries do as well. A dead-lettered message keeps it.
const BULK_HEADER: &str = "x-bulk";
/// The trace that an upstream service gives its event (W3C Trace Context).
const TRACEPARENT_HEADER: &str = "traceparent";

/// A message to publish to the service's own exchange. It is always persistent.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// The name of a queue, or another routing key that the service's own exchange knows.
    pub routing_key: String,
    /// An id by which a consumer tells a repeated message.
    pub id: Option<Uuid>,
    /// The body.
    pub body: Vec<u8>,
    /// Headers with text values. Only the first 1,000 characters of a value are sent.
    pub headers: BTreeMap<String, String>,
    /// The time until the message expires. The queue's own time to live applies if it is shorter.
    pub expires_in: Option<Duration>,
}

impl Outgoing {
    /// Adds the number of earlier deliveries in a header, as the broker's own count restarts with every publish.
    #[must_use]
    pub fn carrying(mut self, delivery_count: u32) -> Self {
        if delivery_count > 0 {
            self.headers.insert(CARRIED_COUNT_HEADER.to_owned(), delivery_count.to_string());
        }
        self
    }

    /// The same message, marked as one of jobs that take the bulk lane.
    #[must_use]
    pub fn of_bulk(mut self) -> Self {
        self.headers.insert(BULK_HEADER.to_owned(), "1".to_owned());
        self
    }

    /// The same message with the trace of the event that it holds, if there is one.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<&Traceparent>) -> Self {
        if let Some(traceparent) = traceparent {
            self.headers.insert(TRACEPARENT_HEADER.to_owned(), traceparent.to_string());
        }
        self
    }

    pub(crate) fn properties(&self) -> BasicProperties {
        let mut headers = FieldTable::default();
        for (name, value) in &self.headers {
            let value: String = value.chars().take(MAX_HEADER_CHARS).collect();
            headers.insert(name.as_str().into(), AMQPValue::LongString(value.into()));
        }
        let properties = BasicProperties::default().with_delivery_mode(2).with_content_type("application/json".into());
        let properties = if self.headers.is_empty() { properties } else { properties.with_headers(headers) };
        let properties = match self.id {
            Some(id) => properties.with_message_id(id.to_string().into()).with_type(self.routing_key.as_str().into()),
            None => properties,
        };
        match self.expires_in {
            // Rounded up, so that nothing comes early.
            Some(wait) => properties.with_expiration(wait.as_nanos().div_ceil(1_000_000).to_string().into()),
            None => properties,
        }
    }
}

/// A message from the broker that waits for its acknowledgement.
#[derive(Debug)]
pub struct Received {
    /// The body.
    pub body: Vec<u8>,
    /// The routing key under which it was published.
    pub routing_key: String,
    /// True if the broker delivered it before.
    pub redelivered: bool,
    /// The number of earlier deliveries without an acknowledgement: the broker's count, plus what [`Outgoing::carrying`]
    /// recorded when it was moved from another queue.
    pub delivery_count: u32,
    /// Whether it is marked by [`Outgoing::of_bulk`].
    pub is_of_bulk: bool,
    /// Its property `content_encoding`.
    pub content_encoding: Option<String>,
    /// The trace that it belongs to. An invalid one is ignored.
    pub traceparent: Option<Traceparent>,
    /// Acknowledges it.
    pub acker: Acker,
}

impl Received {
    /// Wraps a message that the channel of `acks` has delivered.
    pub(crate) fn new(delivery: Delivery, acks: &Arc<Acks>) -> Self {
        let delivery_count = delivery_count(&delivery);
        let headers = delivery.properties.headers().as_ref();
        Self {
            routing_key: delivery.routing_key.into(),
            redelivered: delivery.redelivered,
            delivery_count,
            is_of_bulk: headers.is_some_and(|headers| headers.contains_key(BULK_HEADER)),
            content_encoding: delivery.properties.content_encoding().as_ref().map(ToString::to_string),
            traceparent: headers.and_then(traceparent),
            acker: Acker {
                acks: Some(Arc::clone(acks)),
                tag: delivery.delivery_tag,
                _held: Unacknowledged::count(&acks.held),
            },
            body: delivery.data,
        }
    }
}

/// Counts a redelivery as at least one, as the broker may give no number.
fn delivery_count(delivery: &Delivery) -> u32 {
    let headers = delivery.properties.headers().as_ref();
    let number = |name: &str| headers.and_then(|headers| number(headers.inner().get(name)?)).unwrap_or_default();
    number(REDELIVERY_COUNT_HEADER).max(delivery.redelivered.into()).saturating_add(number(CARRIED_COUNT_HEADER))
}

fn traceparent(headers: &FieldTable) -> Option<Traceparent> {
    let read = match headers.inner().get(TRACEPARENT_HEADER)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().and_then(Traceparent::parse),
        AMQPValue::ShortString(text) => Traceparent::parse(text.as_str()),
        _ => None,
    };
    if read.is_none() {
        tracing::debug!("the header traceparent of a message is invalid: it is ignored");
    }
    read
}

fn number(value: &AMQPValue) -> Option<u32> {
    match value {
        AMQPValue::LongString(text) => text.to_string().parse().ok(),
        AMQPValue::ShortShortInt(number) => u32::try_from(*number).ok(),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => u32::try_from(*number).ok(),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::LongInt(number) => u32::try_from(*number).ok(),
        AMQPValue::LongUInt(number) => Some(*number),
        AMQPValue::LongLongInt(number) => u32::try_from(*number).ok(),
        _ => None,
    }
}

/// Acknowledges one message. A message whose `Acker` is dropped instead is requeued once the subscription has stopped: before
/// that, the broker would deliver the message to this process again.
#[derive(Debug)]
pub struct Acker {
    /// Taken when the message is acknowledged.
    acks: Option<Arc<Acks>>,
    tag: u64,
    _held: Unacknowledged,
}

impl Acker {
    /// Tells the broker that the effects of messages are durable, in as few frames as possible. If a connection is gone, the
    /// broker delivers its messages again. This is counted, and the caller has no error. Acknowledgements that cannot be
    /// sent time out together.
    pub async fn ack_all(mut ackers: Vec<Self>) {
        // The list is short: only a rebuilt connection adds a channel.
        let mut channels: Vec<(Arc<Acks>, Vec<u64>)> = Vec::new();
        for acker in &mut ackers {
            let Some(acks) = acker.acks.take() else { continue };
            match channels.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &acks)) {
                Some((_, tags)) => tags.push(acker.tag),
                None => channels.push((acks, vec![acker.tag])),
            }
        }
        join_all(channels.iter().map(|(acks, tags)| acks.acknowledge(tags))).await;
    }

    /// Whether the channel that handed the message out is still open.
    pub fn is_usable(&self) -> bool {
        self.acks.as_ref().is_some_and(|acks| acks.is_usable())
    }
}

impl Drop for Acker {
    fn drop(&mut self) {
        if let Some(acks) = self.acks.take() {
            acks.requeue(self.tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(name: &str, value: AMQPValue) -> Option<String> {
        let mut headers = FieldTable::default();
        headers.insert(name.into(), value);
        traceparent(&headers).map(|read| read.to_string())
    }

    #[test]
    fn a_trace_is_read_from_a_text_header_and_from_nothing_else() {
        let long = |bytes: &[u8]| AMQPValue::LongString(bytes.to_vec().into());
        assert_eq!(read("traceparent", long(TRACE.as_bytes())).as_deref(), Some(TRACE));
        assert_eq!(read("traceparent", AMQPValue::ShortString(TRACE.into())).as_deref(), Some(TRACE));
        for other in [
            long(b""),
            long(b"\xff\xfe"),
            long(&[TRACE.as_bytes(), b"\xff"].concat()),
            long(&TRACE.to_uppercase().into_bytes()),
            AMQPValue::ByteArray(TRACE.as_bytes().to_vec().into()),
            AMQPValue::LongLongInt(1),
            AMQPValue::Void,
        ] {
            assert_eq!(read("traceparent", other.clone()), None, "{other:?}");
        }
        assert_eq!(read("Traceparent", long(TRACE.as_bytes())), None, "names of headers have a case");
    }

    #[test]
    fn an_expiration_is_in_milliseconds_and_rounded_up() {
        for (wait, expiration) in [(1_500, "2"), (60_000_000, "60000"), (0, "0")] {
            let message = Outgoing { expires_in: Some(Duration::from_micros(wait)), ..Default::default() };
            assert_eq!(message.properties().expiration().as_ref().unwrap().as_str(), expiration);
        }
    }

    #[test]
    fn a_message_carries_on_the_trace_of_its_event() {
        let sent = |trace: Option<&Traceparent>| Outgoing::default().traced(trace).properties();
        let properties = sent(Traceparent::parse(TRACE).as_ref());
        let headers = properties.headers().clone().unwrap();
        assert_eq!(traceparent(&headers).unwrap().as_str(), TRACE);
        assert_eq!(*sent(None).headers(), None);
    }
}
