//! The dispatcher's metrics and their names.

use domain::{Answer, DeliveryState};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use service_kit::buckets;

use crate::lane::{LaneKind, Refusal};

/// Labels of the queues that should be empty.
const SHOULD_BE_EMPTY: [&str; 3] = ["rejected", "dead", "unroutable"];

type ByWord = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Clone, Default)]
pub(crate) struct ByLane(Family<[(&'static str, &'static str); 1], Gauge>);

impl ByLane {
    pub(crate) fn of(&self, kind: LaneKind) -> Gauge {
        self.0.get_or_create_owned(&[("lane", kind.as_str())])
    }
}

#[derive(Clone)]
pub(crate) struct Metrics {
    attempts: ByWord,
    finished: ByWord,
    skipped: ByWord,
    moved: ByWord,
    pub(crate) moved_to_bulk: Counter,
    put_back: ByWord,
    pub(crate) in_flight: ByLane,
    pub(crate) depth: ByLane,
    queue_depth: Family<[(&'static str, &'static str); 1], Gauge>,
    attempt_seconds: Histogram,
    pub(crate) first_attempt_seconds: Histogram,
    pub(crate) read_batch: Histogram,
    pub(crate) write_batch: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: ByWord::default(),
            finished: ByWord::default(),
            skipped: ByWord::default(),
            moved: ByWord::default(),
            moved_to_bulk: Counter::default(),
            put_back: ByWord::default(),
            in_flight: ByLane::default(),
            depth: ByLane::default(),
            queue_depth: Family::default(),
            attempt_seconds: buckets::seconds(),
            first_attempt_seconds: buckets::seconds(),
            read_batch: buckets::batch_sizes(),
            write_batch: buckets::batch_sizes(),
        };
        for kind in LaneKind::ALL {
            metrics.in_flight.of(kind);
            metrics.depth.of(kind);
        }
        for queue in SHOULD_BE_EMPTY {
            metrics.queue_depth(queue);
        }
        let seen = metrics.clone();
        registry.register("webhooks_delivery_attempts", "Attempts, by outcome class", seen.attempts);
        registry.register("webhooks_deliveries_finished", "Deliveries that ended, by state", seen.finished);
        registry.register("webhooks_jobs_skipped", "Jobs that were not attempted, by reason", seen.skipped);
        metrics.lanes(registry);
        registry.register(
            "webhooks_queue_depth",
            "Messages on a queue that should be empty, as every dispatcher sees them",
            seen.queue_depth,
        );
        registry.register("webhooks_attempt_seconds", "How long attempts took", seen.attempt_seconds);
        registry.register(
            "webhooks_first_attempt_delay_seconds",
            "From the event's timestamp to the begin of the first attempt",
            seen.first_attempt_seconds,
        );
        registry.register("webhooks_ledger_read_batch_size", "Jobs read from the ledger at a time", seen.read_batch);
        registry.register("webhooks_ledger_write_batch_size", "Outcomes written at a time", seen.write_batch);
        metrics
    }

    /// Registers the metrics of the lanes.
    fn lanes(&self, registry: &mut Registry) {
        let seen = self.clone();
        registry.register(
            "webhooks_jobs_moved_to_slow_lane",
            "Jobs that left another lane for the slow one, by what they waited for in vain",
            seen.moved,
        );
        registry.register(
            "webhooks_jobs_moved_to_bulk_lane",
            "Messages that were handed on from the main lane to the bulk one, whose jobs left them",
            seen.moved_to_bulk,
        );
        registry.register(
            "webhooks_jobs_put_back_in_slow_lane",
            "Jobs that went to the end of the slow lane once more, by what they waited for in vain",
            seen.put_back,
        );
        registry.register("webhooks_attempts_in_flight", "Jobs under way, by lane", seen.in_flight.0);
        registry.register(
            "webhooks_lane_ready_jobs",
            "Messages that wait on a lane's queue; one may hold up to eight jobs",
            seen.depth.0,
        );
    }

    pub(crate) fn attempted(&self, answer: &Answer) {
        self.attempts.get_or_create(&[("outcome", answer.class.as_str())]).inc();
        self.attempt_seconds.observe(answer.elapsed.as_secs_f64());
    }

    pub(crate) fn finished(&self, state: DeliveryState) {
        self.finished.get_or_create(&[("state", state.as_str())]).inc();
    }

    /// The gauge of a queue that should be empty.
    pub(crate) fn queue_depth(&self, queue: &'static str) -> Gauge {
        self.queue_depth.get_or_create_owned(&[("queue", queue)])
    }

    /// A job went to the end of the slow lane.
    pub(crate) fn moved(&self, from: LaneKind, refusal: Refusal) {
        let counters = match from {
            LaneKind::Main | LaneKind::Bulk => &self.moved,
            LaneKind::Slow => &self.put_back,
        };
        counters.get_or_create(&[("reason", refusal.as_str())]).inc();
    }

    pub(crate) fn skipped(&self, reason: &'static str) {
        self.skipped.get_or_create(&[("reason", reason)]).inc();
    }
}

/// A batch's size, for a histogram.
pub(crate) fn size(messages: usize) -> f64 {
    f64::from(u32::try_from(messages).unwrap_or(u32::MAX))
}
