//! What became of the spans.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The collector took it.
pub(crate) const EXPORTED: &str = "exported";
/// The queue was full, the collector was unavailable for too long, or the process ended first.
pub(crate) const DROPPED: &str = "dropped";
/// The collector answered that it does not want it.
pub(crate) const REFUSED: &str = "refused";

/// Shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats(Family<[(&'static str, &'static str); 1], Counter>);

impl Stats {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("webhooks_trace_spans", "Spans of traces, by what became of them", self.0.clone());
    }

    pub(crate) fn count(&self, outcome: &'static str, spans: usize) {
        if spans > 0 {
            self.of(outcome).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
        }
    }

    #[cfg(test)]
    pub(crate) fn dropped(&self) -> u64 {
        self.of(DROPPED).get()
    }

    fn of(&self, outcome: &'static str) -> Counter {
        self.0.get_or_create_owned(&[("outcome", outcome)])
    }
}
