//! The names of ingest's metrics.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use service_kit::metrics::{Counters, Register, batch_sizes, from_zero, seconds};

/// What becomes of an event.
const VERDICTS: [&str; 4] = ["accepted", "unwanted", "duplicate", "rejected"];

#[derive(Clone)]
pub(crate) struct Metrics {
    events: Counters,
    pub(crate) deliveries: Counter,
    /// 1 while no events are accepted.
    pub(crate) held: Gauge,
    pub(crate) batch_size: Histogram,
    pub(crate) batch_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            events: registry.shown("webhooks_ingest_events", "Events, by outcome", from_zero("outcome", VERDICTS)),
            deliveries: registry.shown("webhooks_ingest_deliveries", "Deliveries made", Counter::default()),
            held: registry.shown(
                "webhooks_ingest_held",
                "Whether no events are accepted, as this machine's clock and the database's differ by over four minutes",
                Gauge::default(),
            ),
            batch_size: registry.shown("webhooks_ingest_batch_size", "Events taken at a time", batch_sizes()),
            batch_seconds: registry.shown(
                "webhooks_ingest_batch_seconds",
                "From taking a batch until all that it publishes is confirmed, but for queues that refuse",
                seconds(),
            ),
        }
    }

    pub(crate) fn event(&self, verdict: &'static str) {
        self.events.get_or_create(&[("outcome", verdict)]).inc();
    }
}
