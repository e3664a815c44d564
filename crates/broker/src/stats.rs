//! Counters of what fails between a process and the broker.

use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// Counters, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub(crate) reconnects: Counter,
    pub(crate) publish_failures: Counter,
    pub(crate) lost_acks: Counter,
}

impl Stats {
    /// Registers the counters in the process's metrics.
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
    }
}
