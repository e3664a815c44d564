//! The names of upkeep's metrics.

use std::{sync::atomic::AtomicU64, time::Duration};

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
    oldest_overdue: Gauge<f64, AtomicU64>,
    partitions_ahead: Gauge,
    days_behind: Gauge,
    transaction_age: Gauge,
    days: Counter,
    copied: Counter,
    ended: Counter,
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
        let Self {
            leader,
            passes,
            jobs,
            oldest_overdue,
            partitions_ahead,
            days_behind,
            transaction_age,
            days,
            copied,
            ended,
        } = metrics.clone();
        registry.register("webhooks_maintenance_leader", "Whether this process looks after the ledger", leader);
        registry.register("webhooks_reconcile_passes", "Comparisons of the ledger with the queues, by result", passes);
        registry.register("webhooks_reconcile_jobs", "Jobs enqueued again from the ledger, by cause", jobs);
        registry.register(
            "webhooks_reconcile_oldest_overdue_seconds",
            "How long the most overdue delivery that is not held, parked or in the outbox has been due",
            oldest_overdue,
        );
        registry.register(
            "webhooks_partitions_ahead_days",
            "Days after today that have their partitions",
            partitions_ahead,
        );
        registry.register(
            "webhooks_retention_behind_days",
            "Days older than the retention whose logs are not removed yet",
            days_behind,
        );
        registry.register(
            "webhooks_database_transaction_age",
            "Transactions since the oldest unfrozen transaction id of the database server",
            transaction_age,
        );
        registry.register("webhooks_retention_days", "Days whose partitions were dropped", days);
        registry.register(
            "webhooks_retention_copied",
            "Deliveries and events that were kept when their day was dropped",
            copied,
        );
        registry.register("webhooks_retention_ended", "Deliveries cancelled after they were held for too long", ended);
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

    pub(crate) fn oldest_overdue(&self, age: Duration) {
        self.oldest_overdue.set(age.as_secs_f64());
    }

    pub(crate) fn partitions_ahead(&self, days: u32) {
        self.partitions_ahead.set(days.into());
    }

    pub(crate) fn days_behind(&self, days: usize) {
        self.days_behind.set(i64::try_from(days).unwrap_or(i64::MAX));
    }

    pub(crate) fn transaction_age(&self, transactions: i32) {
        self.transaction_age.set(transactions.into());
    }

    pub(crate) fn day_dropped(&self) {
        self.days.inc();
    }

    pub(crate) fn ended(&self, deliveries: u32) {
        self.ended.inc_by(deliveries.into());
    }

    pub(crate) fn copied(&self, rows: u32) {
        self.copied.inc_by(rows.into());
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.leader.set(0);
        self.0.oldest_overdue.set(0.0);
        self.0.partitions_ahead.set(0);
        self.0.days_behind.set(0);
        self.0.transaction_age.set(0);
    }
}
