//! What became of the spans.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The collector took it.
    Exported,
    /// The queue was full, the collector was away for too long, or the process ended first.
    Dropped,
    /// The collector answered that it does not want it.
    Refused,
}

impl Fate {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
        }
    }
}

/// Shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats(Family<[(&'static str, &'static str); 1], Counter>);

impl Stats {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("webhooks_trace_spans", "Spans of traces, by what became of them", self.0.clone());
    }

    pub(crate) fn count(&self, fate: Fate, spans: usize) {
        if spans > 0 {
            self.of(fate).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.of(Fate::Dropped).get()
    }

    fn of(&self, fate: Fate) -> Counter {
        self.0.get_or_create_owned(&[("outcome", fate.as_str())])
    }
}
