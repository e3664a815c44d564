//! Counts of what becomes of the spans.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use prometheus_client::metrics::{counter::Counter, family::Family};

/// The maximum number of spans that wait for the collector, with those of the export under way: some 8 MB.
pub(crate) const MAX_WAITING_SPANS: usize = 8192;

/// The collector accepted the span.
const EXPORTED_LABEL: &str = "exported";
/// The queue was full, or the collector did not accept the span.
const DROPPED_LABEL: &str = "dropped";

/// Clones share their counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    waiting: Arc<AtomicUsize>,
    pub(crate) ended: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Stats {
    /// Returns whether one more span may wait. If not, it is counted as dropped.
    pub(crate) fn admit(&self) -> bool {
        let is_admitted = self.waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING_SPANS;
        if !is_admitted {
            self.end(DROPPED_LABEL, 1);
        }
        is_admitted
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn end(&self, outcome: &'static str, spans: usize) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.ended.get_or_create_owned(&[("outcome", outcome)]).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}

/// An exporter whose spans are counted.
#[derive(Debug)]
pub(crate) struct Counted<E>(pub(crate) E, pub(crate) Stats);

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let Self(exporter, stats) = self;
        let spans = batch.len();
        let result = exporter.export(batch).await;
        stats.end(if result.is_ok() { EXPORTED_LABEL } else { DROPPED_LABEL }, spans);
        result
    }
}
