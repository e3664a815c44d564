//! The parts that the leader is given.

use std::time::Duration;

use broker::Broker;
use domain::RetrySchedule;
use ledger::{FailingThresholds, Ledger, RetentionTimes};

use crate::metrics::Metrics;

/// What upkeep needs.
pub struct Upkeep {
    /// The ledger. The leader has a connection of its own, beside the pool's.
    pub ledger: Ledger,
    /// The broker.
    pub broker: Broker,
    /// When retries are due.
    pub schedule: RetrySchedule,
    /// The time between two passes.
    pub interval: Duration,
    /// The time by which a delivery is overdue when its job counts as lost, while the main lane holds little.
    pub grace: Duration,
    /// The times for which history is kept.
    pub kept: RetentionTimes,
    /// The times at which administrators are notified that a webhook is failing.
    pub failing: FailingThresholds,
    /// Where it shows what it does.
    pub metrics: Metrics,
}
