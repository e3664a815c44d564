//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    iter::once,
    sync::Arc,
};

use domain::{Job, Redelivered};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    lane::{LaneKind, place::Place},
    line::bundle::JobAck,
    metrics::ByLane,
};

/// How a message came to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The lane of its queue.
    pub(crate) lane: LaneKind,
    /// The number of its earlier deliveries by the broker, also as the message that it was moved from.
    pub(crate) delivery_count: u32,
}

impl Receipt {
    pub(crate) fn redelivered(self) -> Redelivered {
        Redelivered::from(self.delivery_count > 0)
    }
}

/// A message of a job, with the place that the job has by it.
pub(crate) struct Message {
    pub(crate) ack: JobAck,
    pub(crate) receipt: Receipt,
    /// `None` once the job needs none.
    pub(crate) place: Option<Place>,
}

impl Message {
    /// The lane whose room the job uses. Without a place, it is in a long place, or it needs no place of the slow lane any
    /// more.
    fn lane(&self) -> LaneKind {
        if self.place.is_some() { self.receipt.lane } else { LaneKind::Slow }
    }
}

/// Which jobs are under way in all lanes, with the duplicates of their messages that came meanwhile.
pub(crate) struct InFlight {
    duplicates: Mutex<HashMap<Job, VecDeque<Message>>>,
    gauge: ByLane<Gauge>,
}

impl InFlight {
    pub(crate) fn new(gauge: ByLane<Gauge>) -> Arc<Self> {
        Arc::new(Self { duplicates: Mutex::default(), gauge })
    }

    /// Begins a job. Returns `None` when it is under way already: its message is kept there as a duplicate.
    pub(crate) fn begin(self: &Arc<Self>, job: Job, message: Message) -> Option<UnderWay> {
        match self.duplicates.lock().entry(job) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().push_back(message);
                return None;
            }
            Entry::Vacant(entry) => entry.insert(VecDeque::new()),
        };
        let lane = message.lane();
        self.gauge.of(lane).inc();
        let registered = Registered { in_flight: Arc::clone(self), job, lane, is_removed: false };
        Some(UnderWay { registered, message, watched: None })
    }
}

/// A job that is under way, with the message that it came with. Its task owns it, then the recorder or the holder. When
/// it is dropped, the job is under way no more, and its messages are requeued.
pub(crate) struct UnderWay {
    registered: Registered,
    message: Message,
    /// Dropped when the message ends, which cancels the token of [`UnderWay::watch`].
    watched: Option<DropGuard>,
}

impl UnderWay {
    pub(crate) const fn job(&self) -> Job {
        self.registered.job
    }

    /// The receipt of its message.
    pub(crate) const fn receipt(&self) -> Receipt {
        self.message.receipt
    }

    /// A token that is cancelled when the message ends.
    pub(crate) fn watch(&mut self) -> CancellationToken {
        let token = CancellationToken::new();
        self.watched = Some(token.clone().drop_guard());
        token
    }

    /// Releases its place, for another job to be looked up.
    pub(crate) fn leave_place(&mut self) {
        self.message.place = None;
        self.registered.show(self.message.lane());
    }

    /// Returns true if its message or a duplicate can still be acknowledged. Otherwise the broker delivers them again.
    pub(crate) fn is_usable(&self) -> bool {
        self.message.ack.is_usable() || self.registered.duplicates(|all| all.iter().any(|one| one.ack.is_usable()))
    }

    /// The number of its earlier deliveries by the broker: the highest one of its message and of its duplicates.
    pub(crate) fn delivery_count(&self) -> u32 {
        let of_duplicates = |all: &VecDeque<Message>| all.iter().map(|one| one.receipt.delivery_count).max();
        self.receipt().delivery_count.max(self.registered.duplicates(of_duplicates).unwrap_or_default())
    }

    /// The number of duplicates that have come.
    pub(crate) fn duplicates(&self) -> usize {
        self.registered.duplicates(VecDeque::len)
    }

    /// Ends its message, and the first `duplicates` that came meanwhile. Returns the job's part of each. If a later duplicate
    /// has come, the job continues with that.
    pub(crate) fn end(self, duplicates: usize) -> (Vec<JobAck>, Option<Self>) {
        let Self { mut registered, message, .. } = self;
        let (ended, next) = registered.end(duplicates);
        let acks = once(message).chain(ended).map(|message| message.ack).collect();
        let next = next.map(|message| {
            registered.show(message.lane());
            Self { registered, message, watched: None }
        });
        (acks, next)
    }
}

/// The fact that a job is under way.
struct Registered {
    in_flight: Arc<InFlight>,
    job: Job,
    /// The lane in which the job is shown.
    lane: LaneKind,
    is_removed: bool,
}

impl Registered {
    fn duplicates<T: Default>(&self, look: impl FnOnce(&VecDeque<Message>) -> T) -> T {
        self.in_flight.duplicates.lock().get(&self.job).map(look).unwrap_or_default()
    }

    /// Takes the first `count` duplicates, and the one after them. Without that one, the job is under way no more: the next
    /// message of it begins it anew.
    fn end(&mut self, count: usize) -> (Vec<Message>, Option<Message>) {
        let mut jobs = self.in_flight.duplicates.lock();
        let Some(all) = jobs.get_mut(&self.job) else { return (Vec::new(), None) };
        let ended = all.drain(..count.min(all.len())).collect();
        let next = all.pop_front();
        if next.is_none() {
            jobs.remove(&self.job);
            self.is_removed = true;
        }
        (ended, next)
    }

    fn show(&mut self, lane: LaneKind) {
        self.in_flight.gauge.of(self.lane).dec();
        self.in_flight.gauge.of(lane).inc();
        self.lane = lane;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.in_flight.gauge.of(self.lane).dec();
        if !self.is_removed {
            let left = self.in_flight.duplicates.lock().remove(&self.job);
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use uuid::Uuid;

    use super::*;
    use crate::metrics::Metrics;

    fn in_flight() -> (Arc<InFlight>, ByLane<Gauge>) {
        let gauge = Metrics::register(&mut Registry::default()).in_flight;
        (InFlight::new(gauge.clone()), gauge)
    }

    fn job() -> Job {
        Job { delivery: Uuid::nil().into(), attempt: 1 }
    }

    fn message(lane: LaneKind, delivery_count: u32) -> Message {
        Message { ack: JobAck::lost(), receipt: Receipt { lane, delivery_count }, place: None }
    }

    #[test]
    fn a_job_that_ends_takes_the_duplicates_with_it_that_came_before_and_continues_with_the_next_one() {
        let (in_flight, gauge) = in_flight();
        let first = in_flight.begin(job(), message(LaneKind::Main, 0)).unwrap();
        for delivery_count in 1..=3 {
            assert!(in_flight.begin(job(), message(LaneKind::Main, delivery_count)).is_none());
        }
        assert_eq!((first.duplicates(), first.delivery_count(), first.receipt().delivery_count), (3, 3, 0));
        let (ended, next) = first.end(1);
        let mut next = next.unwrap();
        assert_eq!((ended.len(), next.duplicates(), next.receipt().delivery_count), (2, 1, 2));
        assert_eq!(gauge.of(LaneKind::Slow).get(), 1, "one job, however many messages");
        let watched = next.watch();
        let (ended, last) = next.end(0);
        assert!(watched.is_cancelled() && ended.len() == 1);
        assert!(in_flight.begin(job(), message(LaneKind::Main, 4)).is_none(), "it came in time");
        let (ended, none) = last.unwrap().end(usize::MAX);
        assert!(ended.len() == 2 && none.is_none());
        assert_eq!(gauge.of(LaneKind::Slow).get(), 0);
    }

    #[test]
    fn a_message_that_comes_after_the_end_of_its_job_begins_it_anew() {
        let (in_flight, gauge) = in_flight();
        let ended = in_flight.begin(job(), message(LaneKind::Main, 0)).unwrap().end(usize::MAX);
        let again = in_flight.begin(job(), message(LaneKind::Main, 1)).unwrap();
        drop(ended);
        assert!(
            in_flight.begin(job(), message(LaneKind::Main, 2)).is_none(),
            "the one that has ended is not its owner"
        );
        drop(again);
        assert!(in_flight.begin(job(), message(LaneKind::Main, 3)).is_some(), "a job without a task is not under way");
        assert_eq!(gauge.of(LaneKind::Slow).get(), 0);
    }
}
