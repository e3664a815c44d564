//! What a process shows of its connections to the broker.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Gauges by queue. The label is the queue's name without the prefix.
type ByQueue = Family<[(&'static str, String); 1], Gauge>;

/// Counters and gauges, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub(crate) reconnects: Counter,
    pub(crate) publish_failures: Counter,
    pub(crate) lost_acks: Counter,
    unacknowledged: ByQueue,
    prefetch: ByQueue,
}

/// A message that is counted as unacknowledged until this is dropped.
#[derive(Debug)]
pub(crate) struct Unacknowledged(Gauge);

impl Unacknowledged {
    pub(crate) fn count(messages: &Gauge) -> Self {
        messages.inc();
        Self(messages.clone())
    }
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Stats {
    /// Registers all of them in the process's metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "webhooks_broker_reconnects",
            "Connections to the broker that were built again after a failure",
            self.reconnects.clone(),
        );
        registry.register(
            "webhooks_broker_publish_failures",
            "Calls to publish of which not every message was confirmed",
            self.publish_failures.clone(),
        );
        registry.register(
            "webhooks_broker_lost_acks",
            "Acknowledgements that could not be sent, so that the message will come again",
            self.lost_acks.clone(),
        );
        registry.register(
            "webhooks_consumer_unacknowledged",
            "Messages of a queue that this process holds: taken, and not acknowledged yet",
            self.unacknowledged.clone(),
        );
        registry.register(
            "webhooks_consumer_prefetch",
            "The most messages of a queue that this process may hold",
            self.prefetch.clone(),
        );
    }

    /// Shows the prefetch of a queue's consumer. Returns the gauge of the messages that it holds.
    pub(crate) fn consumer(&self, queue: &str, prefetch: u16) -> Gauge {
        let label = [("queue", queue.to_owned())];
        self.prefetch.get_or_create(&label).set(prefetch.into());
        self.unacknowledged.get_or_create_owned(&label)
    }
}
