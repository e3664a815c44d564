//! The names of ingest's metrics.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use service_kit::buckets;

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) events: Family<[(&'static str, &'static str); 1], Counter>,
    pub(crate) deliveries: Counter,
    pub(crate) batch_size: Histogram,
    pub(crate) batch_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            events: Family::default(),
            deliveries: Counter::default(),
            batch_size: buckets::batch_sizes(),
            batch_seconds: buckets::seconds(),
        };
        let Self { events, deliveries, batch_size, batch_seconds } = metrics.clone();
        registry.register("webhooks_ingest_events", "Events, by outcome", events);
        registry.register("webhooks_ingest_deliveries", "Deliveries made", deliveries);
        registry.register("webhooks_ingest_batch_size", "Events taken at a time", batch_size);
        registry.register(
            "webhooks_ingest_batch_seconds",
            "From taking a batch until all that it publishes is confirmed",
            batch_seconds,
        );
        metrics
    }

    pub(crate) fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&[("outcome", outcome)]).inc();
    }
}
