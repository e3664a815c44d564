//! The names of upkeep's metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// What a pass may come to.
const RESULTS: [&str; 7] = ["done", "acted", "doubtful", "adopted", "rebuilt", "lost_again", "failed"];
/// Why a job is published again.
const CAUSES: [&str; 2] = ["broker_lost", "overdue"];

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;

/// What the leader shows of itself. A process that does not lead shows zeros.
#[derive(Clone, Default)]
pub struct Metrics {
    leader: Gauge,
    passes: ByLabel,
    jobs: ByLabel,
    pub(crate) oldest_overdue: Gauge<f64, AtomicU64>,
    pub(crate) partitions_ahead: Gauge,
    pub(crate) days_behind: Gauge,
    pub(crate) transaction_age: Gauge,
    pub(crate) archive_age: Gauge<f64, AtomicU64>,
    pub(crate) days: Counter,
    pub(crate) ended: Counter,
}

/// Shows that this process leads, until it is dropped.
pub(crate) struct Leading(Metrics);

impl Metrics {
    /// Registers them in the process's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // A rate misses the first count of a series that begins with it.
        for (counters, label, values) in [(&metrics.passes, "result", &RESULTS[..]), (&metrics.jobs, "cause", &CAUSES)]
        {
            for value in values {
                drop(counters.get_or_create(&[(label, *value)]));
            }
        }
        registry.register(
            "webhooks_maintenance_leader",
            "Whether this process looks after the ledger",
            metrics.leader.clone(),
        );
        registry.register(
            "webhooks_reconcile_passes",
            "Comparisons of the ledger with the queues, by result",
            metrics.passes.clone(),
        );
        registry.register(
            "webhooks_reconcile_jobs",
            "Jobs enqueued again from the ledger, by cause",
            metrics.jobs.clone(),
        );
        registry.register(
            "webhooks_reconcile_oldest_overdue_seconds",
            "How long the most overdue delivery that is not held, parked or in the outbox has been due",
            metrics.oldest_overdue.clone(),
        );
        registry.register(
            "webhooks_partitions_ahead_days",
            "Days after today that have their partitions",
            metrics.partitions_ahead.clone(),
        );
        registry.register(
            "webhooks_retention_behind_days",
            "Days whose time is over, and whose logs are not removed yet",
            metrics.days_behind.clone(),
        );
        registry.register(
            "webhooks_database_transaction_age",
            "Transactions since the oldest unfrozen transaction id of the database server",
            metrics.transaction_age.clone(),
        );
        registry.register(
            "webhooks_database_archive_age_seconds",
            "The time since the database server archived a WAL file, or since it counts, if it archived none",
            metrics.archive_age.clone(),
        );
        registry.register("webhooks_retention_days", "Days whose partitions were dropped", metrics.days.clone());
        registry.register(
            "webhooks_retention_ended",
            "Deliveries that still waited when their day was dropped, and were cancelled",
            metrics.ended.clone(),
        );
        metrics
    }

    pub(crate) fn lead(&self) -> Leading {
        self.leader.set(1);
        Leading(self.clone())
    }

    pub(crate) fn passed(&self, result: &'static str) {
        self.passes.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn enqueued(&self, cause: &'static str, jobs: usize) {
        self.jobs.get_or_create(&[("cause", cause)]).inc_by(u64::try_from(jobs).unwrap_or_default());
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.leader.set(0);
        self.0.oldest_overdue.set(0.0);
        self.0.partitions_ahead.set(0);
        self.0.days_behind.set(0);
        self.0.transaction_age.set(0);
        self.0.archive_age.set(0.0);
    }
}
