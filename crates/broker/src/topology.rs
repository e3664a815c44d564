//! Exchanges, queues and bindings as a value (crates/README.md, queues).

use std::time::Duration;

use domain::{EventType, NoticeType, gap_name};
use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use uuid::Uuid;

/// The names of all that the service declares. The `prefix` lets several services share one broker.
#[derive(Clone, Debug)]
pub struct Names {
    prefix: String,
    /// The topic exchange on which upstream services publish.
    pub events_exchange: String,
}

/// A durable exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ExchangeKind,
    /// The exchange that takes messages which no queue takes.
    pub alternate: Option<String>,
    /// The exchange and the keys that feed it, if one does.
    pub bindings: Vec<(String, String)>,
}

/// A durable quorum queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Redeliveries after which a message is dead-lettered. Always set: by default, RabbitMQ 4.x drops it after 20.
    pub delivery_limit: u32,
    /// The routing key under which expired or exhausted messages are dead-lettered to the service's exchange.
    pub dead_letters_to: Option<String>,
    /// How long a message waits at most.
    pub time_to_live: Option<Duration>,
    /// True if it holds 100,000 messages and 1 GiB at most. The oldest give way to newer ones.
    pub is_bounded: bool,
    /// The exchange and the keys that feed it.
    pub bindings: Vec<(String, String)>,
}

/// Exchanges and queues that belong together.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
    /// The queues.
    pub queues: Vec<Queue>,
}

const MAX_REDELIVERIES: u32 = 1_000;
/// For queues that only operators read: reading a message must never use it up.
const UNLIMITED_REDELIVERIES: u32 = 1_000_000_000;
/// The maximum of messages on a bounded queue: about 50 MB of notices.
const MAX_QUEUE_MESSAGES: u32 = 100_000;
/// The maximum of bytes on a bounded queue. Messages may be as long as the broker takes.
const MAX_QUEUE_BYTES: u32 = 1 << 30;

impl Names {
    /// The names under a prefix.
    pub fn new(prefix: &str, events_exchange: &str) -> Self {
        Self { prefix: prefix.to_owned(), events_exchange: events_exchange.to_owned() }
    }

    /// The service's own exchange, to which it publishes everything.
    pub fn exchange(&self) -> String {
        self.prefix.clone()
    }

    /// Events that wait for ingest.
    pub fn events(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// Unusable events, parked for an operator.
    pub fn rejected(&self) -> String {
        format!("{}.events.rejected", self.prefix)
    }

    /// Events that the broker itself parks: no ingest could receive or finish them, or they expired. A client may be unable
    /// to read them.
    pub fn unreadable(&self) -> String {
        format!("{}.events.unreadable", self.prefix)
    }

    /// Jobs that are due: the main lane.
    pub fn main(&self) -> String {
        format!("{}.deliveries", self.prefix)
    }

    /// Jobs of tenants that flood, and jobs that are enqueued in large numbers.
    pub fn bulk(&self) -> String {
        format!("{}.deliveries.bulk", self.prefix)
    }

    /// Jobs that were refused admission in another lane.
    pub fn slow(&self) -> String {
        format!("{}.deliveries.slow", self.prefix)
    }

    /// Jobs that wait for a retry.
    pub fn retry(&self, gap: Duration) -> String {
        format!("{}.retry.{}", self.prefix, gap_name(gap))
    }

    /// An empty queue without a consumer. While it exists, the broker has not lost its disk. It is not in the topology,
    /// which every process declares: only a rebuild from the ledger makes a new one.
    pub fn generation(&self, id: Uuid) -> String {
        format!("{}.generation.{id}", self.prefix)
    }

    /// Dead letters: jobs that are parked for an operator.
    pub fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// The topic exchange for notices. The queue of the same name keeps those that no other queue takes.
    pub fn notices(&self) -> String {
        format!("{}.notices", self.prefix)
    }

    /// The exchange that takes notices which no queue of others takes.
    fn untaken_notices(&self) -> String {
        format!("{}.notices.untaken", self.prefix)
    }

    /// The name of a queue without the prefix, for a metric's label.
    pub fn unprefixed<'q>(&self, queue: &'q str) -> &'q str {
        queue.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(queue)
    }

    /// Messages that matched no queue. The exchange that takes them there has the same name.
    pub fn unroutable(&self) -> String {
        format!("{}.unroutable", self.prefix)
    }
}

impl Topology {
    /// The topology for a retry schedule with these gaps.
    pub fn new(names: &Names, gaps: &[Duration]) -> Self {
        let notices = NoticeType::ALL.map(|notice| (names.exchange(), notice.to_string()));
        let exchanges = vec![
            Exchange::new(names.unroutable(), ExchangeKind::Fanout, None),
            Exchange::new(names.exchange(), ExchangeKind::Direct, Some(names.unroutable())),
            Exchange::new(names.events_exchange.clone(), ExchangeKind::Topic, None),
            Exchange::new(names.untaken_notices(), ExchangeKind::Fanout, None),
            Exchange {
                bindings: notices.into(),
                ..Exchange::new(names.notices(), ExchangeKind::Topic, Some(names.untaken_notices()))
            },
        ];
        let own = |name, delivery_limit, dead_letters_to| Queue::new(names, name, delivery_limit, dead_letters_to);
        let mut unroutable = own(names.unroutable(), UNLIMITED_REDELIVERIES, None);
        unroutable.bindings = vec![(names.unroutable(), String::new())];
        let mut notices = Queue { is_bounded: true, ..own(names.notices(), UNLIMITED_REDELIVERIES, None) };
        notices.bindings = vec![(names.untaken_notices(), String::new())];
        let mut events = own(names.events(), MAX_REDELIVERIES, Some(names.unreadable()));
        // By the service's own exchange, events are requeued.
        for source in [&names.events_exchange, &names.exchange()] {
            events.bindings.extend(EventType::ALL.map(|event_type| (source.clone(), event_type.to_string())));
        }
        let mut queues = vec![
            events,
            own(names.rejected(), UNLIMITED_REDELIVERIES, None),
            own(names.unreadable(), UNLIMITED_REDELIVERIES, None),
            own(names.main(), MAX_REDELIVERIES, Some(names.dead())),
            own(names.bulk(), MAX_REDELIVERIES, Some(names.dead())),
            own(names.slow(), MAX_REDELIVERIES, Some(names.dead())),
            own(names.dead(), UNLIMITED_REDELIVERIES, None),
            unroutable,
            notices,
        ];
        queues.extend(gaps.iter().map(|gap| Queue {
            time_to_live: Some(*gap),
            ..own(names.retry(*gap), MAX_REDELIVERIES, Some(names.main()))
        }));
        Self { exchanges, queues }
    }

    /// Declares everything. Existing exchanges and queues stay as they are.
    ///
    /// # Errors
    /// When the broker refuses, for example because a queue exists with other arguments.
    pub(crate) async fn declare(&self, own_exchange: &str, channel: &Channel) -> Result<(), lapin::Error> {
        for exchange in &self.exchanges {
            exchange.declare(channel).await?;
        }
        for queue in &self.queues {
            let options = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(queue.name.as_str().into(), options, queue.arguments(own_exchange)).await?;
            queue.bind(channel).await?;
        }
        Ok(())
    }

    /// Declares the events exchange.
    ///
    /// # Errors
    /// When the broker refuses.
    pub(crate) async fn declare_events(&self, names: &Names, channel: &Channel) -> Result<(), lapin::Error> {
        for exchange in self.exchanges.iter().filter(|exchange| exchange.name == names.events_exchange) {
            exchange.declare(channel).await?;
        }
        Ok(())
    }

    /// Declares the bindings of the events queue.
    ///
    /// # Errors
    /// When the broker refuses, for example because there is no such exchange or queue.
    pub(crate) async fn bind_events(&self, names: &Names, channel: &Channel) -> Result<(), lapin::Error> {
        for queue in self.queues.iter().filter(|queue| queue.name == names.events()) {
            queue.bind(channel).await?;
        }
        Ok(())
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

impl Exchange {
    const fn new(name: String, kind: ExchangeKind, alternate: Option<String>) -> Self {
        Self { name, kind, alternate, bindings: Vec::new() }
    }

    /// Declares the exchange and the bindings to it.
    async fn declare(&self, channel: &Channel) -> Result<(), lapin::Error> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let name = self.name.as_str();
        channel.exchange_declare(name.into(), self.kind.clone(), options, self.arguments()).await?;
        for (source, key) in &self.bindings {
            let (source, key, options) = (source.as_str(), key.as_str(), ExchangeBindOptions::default());
            channel.exchange_bind(name.into(), source.into(), key.into(), options, FieldTable::default()).await?;
        }
        Ok(())
    }

    pub(crate) fn arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        if let Some(alternate) = &self.alternate {
            arguments.insert("alternate-exchange".into(), text(alternate));
        }
        arguments
    }
}

impl Queue {
    /// A queue that the service's own exchange feeds.
    fn new(names: &Names, name: String, delivery_limit: u32, dead_letters_to: Option<String>) -> Self {
        let bindings = vec![(names.exchange(), name.clone())];
        Self { name, delivery_limit, dead_letters_to, time_to_live: None, is_bounded: false, bindings }
    }

    /// Declares the bindings to the queue.
    async fn bind(&self, channel: &Channel) -> Result<(), lapin::Error> {
        for (exchange, key) in &self.bindings {
            let (name, exchange, key) = (self.name.as_str(), exchange.as_str(), key.as_str());
            let options = QueueBindOptions::default();
            channel.queue_bind(name.into(), exchange.into(), key.into(), options, FieldTable::default()).await?;
        }
        Ok(())
    }

    /// At-least-once dead-lettering needs the strategy, overflow, exchange and queue type. Without any of them the
    /// broker silently falls back to at-most-once.
    pub(crate) fn arguments(&self, own_exchange: &str) -> FieldTable {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text("quorum"));
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(self.delivery_limit.into()));
        if let Some(key) = &self.dead_letters_to {
            arguments.insert("x-dead-letter-exchange".into(), text(own_exchange));
            arguments.insert("x-dead-letter-routing-key".into(), text(key));
            arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
            arguments.insert("x-overflow".into(), text("reject-publish"));
        }
        if self.is_bounded {
            arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(MAX_QUEUE_MESSAGES.into()));
            arguments.insert("x-max-length-bytes".into(), AMQPValue::LongLongInt(MAX_QUEUE_BYTES.into()));
            arguments.insert("x-overflow".into(), text("drop-head"));
        }
        if let Some(time_to_live) = self.time_to_live {
            let millis = i64::try_from(time_to_live.as_millis()).unwrap_or(i64::MAX);
            arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use domain::RetrySchedule;

    use super::*;

    fn topology() -> Topology {
        Topology::new(&Names::new("webhooks", "business.events"), &RetrySchedule::default().gaps())
    }

    #[test]
    fn the_production_schedule_has_a_queue_for_each_gap() {
        let waits: Vec<_> = topology()
            .queues
            .into_iter()
            .filter_map(|queue| Some((queue.name, queue.time_to_live?.as_secs())))
            .collect();
        let expected =
            [60, 240, 600, 2700, 10800, 28800].map(|seconds| (format!("webhooks.retry.{seconds}s"), seconds));
        assert_eq!(waits, expected);
    }

    #[test]
    fn a_retry_queue_leads_back_to_the_deliveries_and_loses_none() {
        let retry = topology().queues.into_iter().find(|queue| queue.time_to_live.is_some()).unwrap();
        let expected = [
            ("x-queue-type", text("quorum")),
            ("x-delivery-limit", AMQPValue::LongLongInt(1_000)),
            ("x-message-ttl", AMQPValue::LongLongInt(60_000)),
            ("x-dead-letter-exchange", text("webhooks")),
            ("x-dead-letter-routing-key", text("webhooks.deliveries")),
            ("x-dead-letter-strategy", text("at-least-once")),
            ("x-overflow", text("reject-publish")),
        ];
        let expected = expected.map(|(name, value)| (name.into(), value));
        assert_eq!(*retry.arguments("webhooks").inner(), expected.into());
    }

    #[test]
    fn every_queue_is_named_limited_and_bound() {
        let names: Vec<_> = topology().queues.iter().map(|queue| queue.name.clone()).collect();
        let fixed = [
            "webhooks.events",
            "webhooks.events.rejected",
            "webhooks.events.unreadable",
            "webhooks.deliveries",
            "webhooks.deliveries.bulk",
            "webhooks.deliveries.slow",
            "webhooks.dead",
            "webhooks.unroutable",
            "webhooks.notices",
        ];
        assert_eq!(names[..9], fixed);
        for queue in topology().queues {
            let arguments = queue.arguments("webhooks");
            assert!(!queue.bindings.is_empty() && queue.delivery_limit > 0);
            let keys: Vec<_> = arguments.inner().keys().map(lapin::types::ShortString::as_str).collect();
            assert!(keys.contains(&"x-queue-type"));
            for limit in ["x-max-length", "x-max-length-bytes"] {
                assert_eq!(keys.contains(&limit), queue.name == "webhooks.notices", "{}", queue.name);
            }
            if queue.dead_letters_to.is_some() {
                assert!(keys.contains(&"x-dead-letter-strategy") && keys.contains(&"x-overflow"), "{keys:?}");
            }
        }
    }

    #[test]
    fn events_come_by_each_exchange_under_the_seven_keys_alone() {
        let bindings = &topology().queues[0].bindings;
        for source in ["business.events", "webhooks"] {
            let keys = bindings.iter().filter(|(from, _)| from == source).map(|(_, key)| key.as_str());
            let keys: Vec<_> = keys.filter(|key| *key != "webhooks.events").collect();
            assert_eq!(keys, EventType::ALL.map(EventType::as_str), "{source}");
        }
        assert!(bindings.iter().all(|(_, key)| key != "#"));
    }
}
