//! The jobs that are under way in this process.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use domain::{Job, Redelivered};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    lane::{LaneKind, Place},
    metrics::ByLane,
    shared_ack::SharedAck,
};

/// How a message came to this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// The lane of its queue.
    pub(crate) lane: LaneKind,
    /// How often the broker handed it out before, also as the message that it was moved from.
    pub(crate) handed_out_before: u32,
}

impl Receipt {
    pub(crate) fn redelivered(self) -> Redelivered {
        Redelivered::from(self.handed_out_before > 0)
    }
}

/// What a job holds of the message that it came with.
pub(crate) struct Message {
    pub(crate) ack: SharedAck,
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

/// The jobs that are under way in all lanes, with the messages to acknowledge when they are done. A job's own message
/// comes first, then its duplicates.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, InFlightEntry>>,
    gauge: ByLane,
}

#[derive(Default)]
struct InFlightEntry {
    messages: VecDeque<Message>,
    /// Dropped when the job ends, which cancels the token of [`InFlight::watch`].
    watched: Option<DropGuard>,
}

impl InFlight {
    pub(crate) fn new(gauge: ByLane) -> Self {
        Self { jobs: Mutex::default(), gauge }
    }

    /// Begins a job. Returns `false` when it is under way already: its message is kept there as a duplicate.
    pub(crate) fn begin(&self, job: Job, message: Message) -> bool {
        match self.jobs.lock().entry(job) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().messages.push_back(message);
                false
            }
            Entry::Vacant(entry) => {
                self.gauge.of(message.lane()).inc();
                entry.insert(InFlightEntry::default()).messages.push_back(message);
                true
            }
        }
    }

    /// A token that is cancelled when the job ends. It is cancelled already if the job is not under way.
    pub(crate) fn watch(&self, job: Job) -> CancellationToken {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        if let Some(entry) = self.jobs.lock().get_mut(&job) {
            entry.watched = Some(guard);
        }
        token
    }

    /// Returns the number of messages of a job, and the lane of the first.
    pub(crate) fn messages(&self, job: Job) -> (usize, Option<LaneKind>) {
        let jobs = self.jobs.lock();
        let messages = jobs.get(&job).map(|entry| &entry.messages);
        (messages.map_or(0, VecDeque::len), messages.and_then(|all| all.front()).map(|first| first.receipt.lane))
    }

    /// Ends the first messages of a job. Returns the job's part of each, and the receipt of a duplicate that came later:
    /// then the job continues with that.
    pub(crate) fn finish_messages(&self, job: Job, messages: usize) -> (Vec<SharedAck>, Option<Receipt>) {
        let (mut acks, mut later) = (Vec::with_capacity(messages), None);
        for _ in 0..messages {
            if let Some((ack, next)) = self.finish_message(job) {
                acks.push(ack);
                later = next;
            }
        }
        (acks, later)
    }

    /// Returns true if any of a job's messages can still be acknowledged. Otherwise the broker delivers them again.
    pub(crate) fn is_usable(&self, job: Job) -> bool {
        let jobs = self.jobs.lock();
        jobs.get(&job).is_some_and(|entry| entry.messages.iter().any(|message| message.ack.is_usable()))
    }

    /// Releases the place of a job, for another one to be looked up.
    pub(crate) fn leave_place(&self, job: Job) {
        if let Some(first) = self.jobs.lock().get_mut(&job).and_then(|entry| entry.messages.front_mut()) {
            self.gauge.of(first.lane()).dec();
            first.place = None;
            self.gauge.of(first.lane()).inc();
        }
    }

    /// How often a job was handed out before: the highest count of its messages.
    pub(crate) fn handed_out_before(&self, job: Job) -> u32 {
        let jobs = self.jobs.lock();
        let messages = jobs.get(&job).into_iter().flat_map(|entry| &entry.messages);
        messages.map(|message| message.receipt.handed_out_before).max().unwrap_or_default()
    }

    /// Whether one of a job's messages was handed out before.
    pub(crate) fn redelivered(&self, job: Job) -> Redelivered {
        Redelivered::from(self.handed_out_before(job) > 0)
    }

    /// Removes a job. Returns its part of each of its messages: its own first, then those of its duplicates.
    pub(crate) fn finish(&self, job: Job) -> Vec<SharedAck> {
        let messages = self.jobs.lock().remove(&job).map(|entry| entry.messages).unwrap_or_default();
        if let Some(first) = messages.front() {
            self.gauge.of(first.lane()).dec();
        }
        messages.into_iter().map(|message| message.ack).collect()
    }

    /// Ends the first message of a job. Returns the job's part of it, and the receipt of a duplicate that came meanwhile:
    /// then the job goes on with that.
    pub(crate) fn finish_message(&self, job: Job) -> Option<(SharedAck, Option<Receipt>)> {
        let mut jobs = self.jobs.lock();
        let entry = jobs.get_mut(&job)?;
        entry.watched = None;
        let ended = entry.messages.pop_front()?;
        self.gauge.of(ended.lane()).dec();
        let duplicate = entry.messages.front().map(|message| (message.receipt, message.lane()));
        match duplicate {
            Some((_, lane)) => {
                self.gauge.of(lane).inc();
            }
            None => {
                jobs.remove(&job);
            }
        }
        Some((ended.ack, duplicate.map(|(receipt, _)| receipt)))
    }
}
