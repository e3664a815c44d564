//! What the metrics of all processes share.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

/// Upper bounds in seconds, from a millisecond to half a minute in steps of about two. The same in every process, so
/// that dashboards can add them up.
pub const SECONDS: [f64; 15] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0];

/// Upper bounds for the number of messages in a batch: the powers of two to 1024.
pub const BATCH_SIZES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// One label. Its values are from a closed set.
pub type Label = [(&'static str, &'static str); 1];
/// Counters that differ in one label.
pub type Counters = Family<Label, Counter>;
/// Gauges that differ in one label.
pub type Gauges = Family<Label, Gauge>;

/// Counters that show 0 for each value of a label before they count: a rate misses the first count of a series that
/// begins with it, and it may be the only one.
pub fn from_zero(label: &'static str, values: impl IntoIterator<Item = &'static str>) -> Counters {
    let counters = Counters::default();
    for value in values {
        drop(counters.get_or_create(&[(label, value)]));
    }
    counters
}

/// A histogram of durations in seconds; fits `Family::new_with_constructor`.
pub fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// A histogram of batch sizes.
pub fn batch_sizes() -> Histogram {
    Histogram::new(BATCH_SIZES)
}

/// Registers a metric and returns it.
pub trait Register {
    /// Shows a metric under a name, with a line that explains it.
    fn shown<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;
}

impl Register for Registry {
    fn shown<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }
}
