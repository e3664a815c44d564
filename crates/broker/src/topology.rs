//! Exchanges, queues and bindings as a value (crates/README.md, queues).

use std::time::Duration;

use domain::{EventType, NoticeType, gap_name};
use lapin::{
    Channel, ExchangeKind as AmqpKind,
    options::{
        ExchangeBindOptions, ExchangeDeclareOptions, ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
    },
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

/// How an exchange routes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Routes by patterns.
    Topic,
    /// Routes by the whole key.
    Direct,
    /// Routes to every queue.
    Fanout,
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
    /// The bindings of an earlier setting, which are removed.
    pub unbound: Vec<(String, String)>,
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
    /// The most messages. The oldest give way to newer ones.
    pub most: Option<u32>,
    /// The exchange and the keys that feed it.
    pub bindings: Vec<(String, String)>,
}

/// All that the service needs on the broker.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
    /// The queues.
    pub queues: Vec<Queue>,
}

const REDELIVERIES: u32 = 1_000;
/// For queues that only operators read: reading a message must never use it up.
const UNLIMITED: u32 = 1_000_000_000;
/// The maximum of messages on a queue that anybody outside the service can fill: about 50 MB of notices.
pub const QUEUE_LIMIT: u32 = 100_000;
/// Matches every routing key.
const ANY_KEY: &str = "#";

impl Names {
    /// The names under a prefix.
    #[must_use]
    pub fn new(prefix: &str, events_exchange: &str) -> Self {
        Self { prefix: prefix.to_owned(), events_exchange: events_exchange.to_owned() }
    }

    /// The service's own exchange, to which it publishes everything.
    #[must_use]
    pub fn exchange(&self) -> String {
        self.prefix.clone()
    }

    /// Events that wait for ingest.
    #[must_use]
    pub fn events(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// Unusable events, parked for an operator.
    #[must_use]
    pub fn rejected(&self) -> String {
        format!("{}.events.rejected", self.prefix)
    }

    /// Events with an unknown routing key, parked for an operator.
    #[must_use]
    pub fn unknown_key(&self) -> String {
        format!("{}.events.unknown_key", self.prefix)
    }

    /// The exchange that gets a copy of everything on the events exchange. It routes events with a known key to the
    /// events queue, which has them already: RabbitMQ stores a message once in a queue, however many ways lead there.
    /// Its alternate exchange gets the rest.
    #[must_use]
    pub fn known_keys(&self) -> String {
        format!("{}.events.known_keys", self.prefix)
    }

    /// Messages of the events exchange with any other routing key, until ingest has judged them. The exchange that routes
    /// them there has the same name.
    #[must_use]
    pub fn other_keys(&self) -> String {
        format!("{}.events.other_keys", self.prefix)
    }

    /// Jobs that are due: the main lane.
    #[must_use]
    pub fn main(&self) -> String {
        format!("{}.deliveries", self.prefix)
    }

    /// Jobs of tenants that flood, and jobs that are enqueued in large numbers.
    #[must_use]
    pub fn bulk(&self) -> String {
        format!("{}.deliveries.bulk", self.prefix)
    }

    /// Jobs that were refused admission in another lane.
    #[must_use]
    pub fn slow(&self) -> String {
        format!("{}.deliveries.slow", self.prefix)
    }

    /// Jobs that wait for a retry.
    #[must_use]
    pub fn retry(&self, gap: Duration) -> String {
        format!("{}.retry.{}", self.prefix, gap_name(gap))
    }

    /// An empty queue without a consumer. While it exists, the broker has not lost its disk. It is not in the topology,
    /// which every process declares: only a rebuild from the ledger makes a new one.
    #[must_use]
    pub fn generation(&self, id: Uuid) -> String {
        format!("{}.generation.{id}", self.prefix)
    }

    /// Dead letters: jobs that are parked for an operator.
    #[must_use]
    pub fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// The topic exchange for notices. The queue of the same name keeps those that no other queue takes.
    #[must_use]
    pub fn notices(&self) -> String {
        format!("{}.notices", self.prefix)
    }

    /// The exchange that takes notices which no queue of others takes.
    fn untaken_notices(&self) -> String {
        format!("{}.notices.untaken", self.prefix)
    }

    /// The name of a queue without the prefix, for a metric's label.
    #[must_use]
    pub fn unprefixed<'q>(&self, queue: &'q str) -> &'q str {
        queue.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(queue)
    }

    /// Messages that matched no queue. The exchange that takes them there has the same name.
    #[must_use]
    pub fn unroutable(&self) -> String {
        format!("{}.unroutable", self.prefix)
    }
}

impl Topology {
    /// The topology for a retry schedule with these gaps.
    #[must_use]
    pub fn new(names: &Names, gaps: &[Duration]) -> Self {
        let exchange = |name: String, kind, alternate| {
            let (bindings, unbound) = (Vec::new(), Vec::new());
            Exchange { name, kind, alternate, bindings, unbound }
        };
        let notices = NoticeType::ALL.map(|notice| (names.exchange(), notice.to_string()));
        let exchanges = vec![
            exchange(names.unroutable(), ExchangeKind::Fanout, None),
            exchange(names.exchange(), ExchangeKind::Direct, Some(names.unroutable())),
            exchange(names.events_exchange.clone(), ExchangeKind::Topic, None),
            exchange(names.other_keys(), ExchangeKind::Fanout, None),
            // The events exchange may be another's, and an exchange that exists cannot get an alternate exchange.
            Exchange {
                bindings: vec![(names.events_exchange.clone(), ANY_KEY.to_owned())],
                ..exchange(names.known_keys(), ExchangeKind::Direct, Some(names.other_keys()))
            },
            exchange(names.untaken_notices(), ExchangeKind::Fanout, None),
            Exchange {
                bindings: notices.into(),
                ..exchange(names.notices(), ExchangeKind::Topic, Some(names.untaken_notices()))
            },
        ];
        let own = |name: String, delivery_limit, dead_letters_to| {
            let bindings = vec![(names.exchange(), name.clone())];
            Queue { name, delivery_limit, dead_letters_to, time_to_live: None, most: None, bindings }
        };
        let mut events = own(names.events(), REDELIVERIES, Some(names.rejected()));
        // By the service's own exchange, events are requeued.
        for source in [names.events_exchange.clone(), names.known_keys(), names.exchange()] {
            events.bindings.extend(EventType::ALL.map(|event_type| (source.clone(), event_type.to_string())));
        }
        let mut other_keys = Queue { most: Some(QUEUE_LIMIT), ..own(names.other_keys(), UNLIMITED, None) };
        other_keys.bindings = vec![(names.other_keys(), String::new())];
        let mut unroutable = own(names.unroutable(), UNLIMITED, None);
        unroutable.bindings = vec![(names.unroutable(), String::new())];
        let mut notices = Queue { most: Some(QUEUE_LIMIT), ..own(names.notices(), UNLIMITED, None) };
        notices.bindings = vec![(names.untaken_notices(), String::new())];
        let mut queues = vec![
            events,
            own(names.rejected(), UNLIMITED, None),
            Queue { most: Some(QUEUE_LIMIT), ..own(names.unknown_key(), UNLIMITED, None) },
            // After the events queue is bound: before, an event with a known key would come here.
            other_keys,
            own(names.main(), REDELIVERIES, Some(names.dead())),
            own(names.bulk(), REDELIVERIES, Some(names.dead())),
            own(names.slow(), REDELIVERIES, Some(names.dead())),
            own(names.dead(), UNLIMITED, None),
            unroutable,
            notices,
        ];
        queues.extend(
            gaps.iter().map(|gap| Queue {
                time_to_live: Some(*gap),
                ..own(names.retry(*gap), REDELIVERIES, Some(names.main()))
            }),
        );
        Self { exchanges, queues }
    }

    /// The same topology without the copies of messages with unknown routing keys. Declaring it ends them.
    #[must_use]
    pub fn ignoring_unknown_keys(mut self) -> Self {
        for exchange in &mut self.exchanges {
            let bindings = std::mem::take(&mut exchange.bindings);
            (exchange.unbound, exchange.bindings) = bindings.into_iter().partition(|(_, key)| key == ANY_KEY);
        }
        self
    }

    /// Declares everything. Existing exchanges and queues stay as they are.
    ///
    /// # Errors
    /// When the broker refuses, for example because a queue exists with other arguments.
    pub(crate) async fn declare(&self, own_exchange: &str, channel: &Channel) -> Result<(), lapin::Error> {
        for exchange in &self.exchanges {
            let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
            let kind = exchange.kind.as_amqp();
            channel.exchange_declare(exchange.name.as_str().into(), kind, options, exchange.arguments()).await?;
            for (source, key) in &exchange.bindings {
                let (name, source, key) = (exchange.name.as_str(), source.as_str(), key.as_str());
                let options = ExchangeBindOptions::default();
                channel.exchange_bind(name.into(), source.into(), key.into(), options, FieldTable::default()).await?;
            }
            for (source, key) in &exchange.unbound {
                let (name, source, key) = (exchange.name.as_str(), source.as_str(), key.as_str());
                let options = ExchangeUnbindOptions::default();
                channel.exchange_unbind(name.into(), source.into(), key.into(), options, FieldTable::default()).await?;
            }
        }
        for queue in &self.queues {
            let options = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(queue.name.as_str().into(), options, queue.arguments(own_exchange)).await?;
            for (exchange, key) in &queue.bindings {
                let options = QueueBindOptions::default();
                let (name, exchange, key) = (queue.name.as_str(), exchange.as_str(), key.as_str());
                channel.queue_bind(name.into(), exchange.into(), key.into(), options, FieldTable::default()).await?;
            }
        }
        Ok(())
    }
}

impl ExchangeKind {
    pub(crate) const fn as_amqp(self) -> AmqpKind {
        match self {
            Self::Topic => AmqpKind::Topic,
            Self::Direct => AmqpKind::Direct,
            Self::Fanout => AmqpKind::Fanout,
        }
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

impl Exchange {
    pub(crate) fn arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        if let Some(alternate) = &self.alternate {
            arguments.insert("alternate-exchange".into(), text(alternate));
        }
        arguments
    }
}

impl Queue {
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
        if let Some(most) = self.most {
            arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(most.into()));
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
    fn every_queue_is_named_limited_and_bound() {
        let names: Vec<_> = topology().queues.iter().map(|queue| queue.name.clone()).collect();
        let fixed = [
            "webhooks.events",
            "webhooks.events.rejected",
            "webhooks.events.unknown_key",
            "webhooks.events.other_keys",
            "webhooks.deliveries",
            "webhooks.deliveries.bulk",
            "webhooks.deliveries.slow",
            "webhooks.dead",
            "webhooks.unroutable",
            "webhooks.notices",
        ];
        assert_eq!(names[..10], fixed);
        let bounded = [fixed[2], fixed[3], fixed[9]];
        for queue in topology().queues {
            let arguments = queue.arguments("webhooks");
            assert!(!queue.bindings.is_empty() && queue.delivery_limit > 0);
            let keys: Vec<_> = arguments.inner().keys().map(lapin::types::ShortString::as_str).collect();
            assert!(keys.contains(&"x-queue-type"));
            assert_eq!(keys.contains(&"x-max-length"), bounded.contains(&queue.name.as_str()));
            if queue.dead_letters_to.is_some() {
                assert!(keys.contains(&"x-dead-letter-strategy") && keys.contains(&"x-overflow"), "{keys:?}");
            }
        }
    }

    #[test]
    fn what_has_an_unknown_key_is_copied_unless_that_is_switched_off() {
        let any = vec![("business.events".to_owned(), "#".to_owned())];
        let of = |topology: Topology| {
            let mut found = topology.exchanges.into_iter().filter(|one| one.name == "webhooks.events.known_keys");
            found.next().map(|one| (one.kind, one.alternate, one.bindings, one.unbound)).unwrap()
        };
        let alternate = Some("webhooks.events.other_keys".to_owned());
        assert_eq!(of(topology()), (ExchangeKind::Direct, alternate.clone(), any.clone(), Vec::new()));
        assert_eq!(of(topology().ignoring_unknown_keys()), (ExchangeKind::Direct, alternate, Vec::new(), any));
        let unbound = |topology: Topology| topology.exchanges.iter().flat_map(|one| &one.unbound).count();
        assert_eq!((unbound(topology()), unbound(topology().ignoring_unknown_keys())), (0, 1));
        let events = &topology().queues[0];
        for source in ["business.events", "webhooks.events.known_keys", "webhooks"] {
            let keys = events.bindings.iter().filter(|(from, _)| from == source).map(|(_, key)| key.as_str());
            let keys: Vec<_> = keys.filter(|key| *key != "webhooks.events").collect();
            assert_eq!(keys, EventType::ALL.map(EventType::as_str), "{source}");
        }
    }
}
