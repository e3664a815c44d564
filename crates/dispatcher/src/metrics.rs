//! The dispatcher's metrics and their names.

use std::{
    sync::atomic::AtomicU64,
    time::{SystemTime, UNIX_EPOCH},
};

use domain::{DeliveryState, OutcomeClass, PostResult};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use service_kit::metrics::{Counters, Label, Register, SECONDS, batch_sizes, from_zero, seconds};
use strum::VariantNames;

use crate::{
    brake::Brakes,
    lane::{LaneKind, refusal::Refusal},
};

/// The states in which deliveries end.
const END_STATES: [&str; 3] = ["succeeded", "dropped", "cancelled"];

/// A reason not to attempt a job, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NotAttempted {
    /// The job is under way already.
    Duplicate,
    /// The ledger does not expect this attempt.
    Stale,
    /// The ledger expects this attempt later.
    Early,
    /// This attempt is recorded, and its retry may not have been published.
    #[strum(serialize = "follow_up")]
    PublishRetry,
    /// Its webhook is deleted.
    Cancelled,
    /// Its webhook's secret does not open.
    Sealed,
    /// Retention has deleted its delivery.
    Expired,
    /// Its message was lost with its connection: the broker delivers the message again.
    MessageLost,
    /// This process accepts no jobs.
    Braked,
    /// This process had no descriptor for it: the attempt is made in a minute.
    NoDescriptor,
}

/// A metric of each lane. Each is there from the start: a rate misses the first count of a series that begins with it.
#[derive(Clone)]
pub(crate) struct ByLane<M>([M; 3]);

impl<M: Clone> ByLane<M> {
    fn shown(registry: &mut Registry, name: &str, help: &str, family: Family<Label, M>) -> Self
    where
        Family<Label, M>: Metric,
    {
        let family = registry.shown(name, help, family);
        Self(LaneKind::ALL.map(|kind| family.get_or_create_owned(&[("lane", kind.into())])))
    }

    pub(crate) const fn of(&self, kind: LaneKind) -> &M {
        &self.0[kind as usize]
    }
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> ByLane<Gauge> {
    ByLane::shown(registry, name, help, Family::default())
}

#[derive(Clone)]
pub(crate) struct Metrics {
    attempts: Counters,
    finished: Counters,
    not_attempted: Counters,
    held: Counters,
    pub(crate) moved_to_bulk: Counter,
    pub(crate) brakes: Brakes,
    pub(crate) in_flight: ByLane<Gauge>,
    pub(crate) depth: ByLane<Gauge>,
    slots: ByLane<Gauge>,
    queue_depth: Family<[(&'static str, String); 1], Gauge>,
    last_success: Gauge<f64, AtomicU64>,
    attempt_seconds: Histogram,
    first_attempt_seconds: ByLane<Histogram>,
    pub(crate) read_batch: Histogram,
    pub(crate) write_batch: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let mut counters = |name, help, (label, values): (_, &[_])| {
            registry.shown(name, help, from_zero(label, values.iter().copied()))
        };
        let outcomes = OutcomeClass::ALL.map(OutcomeClass::as_str);
        Self {
            attempts: counters("webhooks_delivery_attempts", "Attempts, by outcome class", ("outcome", &outcomes)),
            finished: counters(
                "webhooks_deliveries_finished",
                "Deliveries that ended, by state",
                ("state", &END_STATES),
            ),
            not_attempted: counters(
                "webhooks_jobs_skipped",
                "Jobs that were not attempted, dead letters among them, by reason",
                ("reason", NotAttempted::VARIANTS),
            ),
            held: counters(
                "webhooks_jobs_held",
                "Jobs that the ledger keeps for now, by why: the webhook is paused, or what they waited for in vain",
                ("reason", Refusal::VARIANTS),
            ),
            moved_to_bulk: registry.shown(
                "webhooks_jobs_moved_to_bulk_lane",
                "Retries that were handed on from the main lane to the bulk one, whose jobs left them",
                Counter::default(),
            ),
            brakes: Brakes::shown(registry),
            in_flight: gauges(registry, "webhooks_attempts_in_flight", "Jobs under way, by lane"),
            depth: gauges(registry, "webhooks_lane_ready_jobs", "Messages on a lane's queue, of up to eight jobs each"),
            queue_depth: registry.shown(
                "webhooks_queue_depth",
                "Messages that wait on a queue, as every dispatcher sees them",
                Family::default(),
            ),
            slots: gauges(registry, "webhooks_slots", "The maximum of attempts at a time, by lane; bulk shares main's"),
            last_success: registry.shown(
                "webhooks_last_success_timestamp_seconds",
                "When this process last delivered something, in Unix time; 0 if it has not yet",
                Gauge::default(),
            ),
            attempt_seconds: registry.shown("webhooks_attempt_seconds", "How long attempts took", seconds()),
            first_attempt_seconds: ByLane::shown(
                registry,
                "webhooks_first_attempt_delay_seconds",
                "From the acceptance of a delivery to its first attempt, by lane",
                Family::new_with_constructor(delays as fn() -> _),
            ),
            read_batch: registry.shown("webhooks_ledger_read_batch_size", "Jobs read at a time", batch_sizes()),
            write_batch: registry.shown(
                "webhooks_ledger_write_batch_size",
                "Outcomes written at a time",
                batch_sizes(),
            ),
        }
    }

    /// Shows the maximum of attempts at a time; the bulk lane shares the main one's.
    pub(crate) fn show_slots(&self, main: u16, slow: u16) {
        for (lane, slots) in [(LaneKind::Main, main), (LaneKind::Bulk, main), (LaneKind::Slow, slow)] {
            self.slots.of(lane).set(slots.into());
        }
    }

    pub(crate) fn count_attempt(&self, answer: &PostResult) {
        self.attempts.get_or_create(&[("outcome", answer.class.as_str())]).inc();
        self.attempt_seconds.observe(answer.elapsed.as_secs_f64());
    }

    /// Counts the delay of a delivery's first attempt.
    pub(crate) fn observe_delay(&self, lane: LaneKind, delay: time::Duration) {
        self.first_attempt_seconds.of(lane).observe(delay.as_seconds_f64().max(0.0));
    }

    pub(crate) fn count_finished(&self, state: DeliveryState) {
        if state == DeliveryState::Succeeded {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.last_success.set(now.as_secs_f64());
        }
        self.finished.get_or_create(&[("state", state.as_str())]).inc();
    }

    /// The gauge of a queue's depth.
    pub(crate) fn queue_depth(&self, queue: String) -> Gauge {
        self.queue_depth.get_or_create_owned(&[("queue", queue)])
    }

    /// Counts a held job.
    pub(crate) fn count_held(&self, refusal: Refusal) {
        self.held.get_or_create(&[("reason", refusal.into())]).inc();
    }

    pub(crate) fn count_not_attempted(&self, reason: impl Into<&'static str>) {
        self.not_attempted.get_or_create(&[("reason", reason.into())]).inc();
    }
}

/// Upper bounds in seconds above those of [`SECONDS`]: an outage delays deliveries by hours.
const LONG_DELAYS_SECONDS: [f64; 7] = [60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];

fn delays() -> Histogram {
    Histogram::new(SECONDS.into_iter().chain(LONG_DELAYS_SECONDS))
}

/// A batch's size, for a histogram.
pub(crate) fn size(messages: usize) -> f64 {
    f64::from(u32::try_from(messages).unwrap_or(u32::MAX))
}
