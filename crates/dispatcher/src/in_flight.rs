//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::{Job, Redelivered};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    lane::{LaneKind, Place},
    metrics::ByLane,
    shared_ack::{Finisher, FollowUp, SharedAck},
};

/// How a message was delivered to this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// The lane of its queue.
    pub(crate) lane: LaneKind,
    /// How often it was delivered before, also as the message that it was moved from.
    pub(crate) delivery_count: u32,
}

impl Receipt {
    pub(crate) fn redelivered(self) -> Redelivered {
        Redelivered::from(self.delivery_count > 0)
    }
}

/// What a job holds of the message that it came with.
pub(crate) struct Message {
    pub(crate) ack: SharedAck,
    pub(crate) receipt: Receipt,
    pub(crate) place: Place,
}

/// The jobs that are under way in all lanes, with the messages to acknowledge when they are done. A job's own message
/// comes first, then its duplicates.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, InFlightEntry>>,
    gauge: ByLane,
    finisher: Finisher,
}

#[derive(Default)]
struct InFlightEntry {
    messages: VecDeque<Message>,
    /// Dropped when the job ends, which cancels the token of [`InFlight::watch`].
    watched: Option<DropGuard>,
}

impl InFlight {
    pub(crate) fn new(gauge: ByLane, finisher: Finisher) -> Self {
        Self { jobs: Mutex::default(), gauge, finisher }
    }

    pub(crate) const fn finisher(&self) -> &Finisher {
        &self.finisher
    }

    /// Begins a job. Returns `false` when it is under way already: its message is kept there as a duplicate.
    pub(crate) fn begin(&self, job: Job, message: Message) -> bool {
        match self.lock().entry(job) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().messages.push_back(message);
                false
            }
            Entry::Vacant(entry) => {
                self.gauge.of(message.receipt.lane).inc();
                entry.insert(InFlightEntry::default()).messages.push_back(message);
                true
            }
        }
    }

    /// A token that is cancelled when the job ends. It is cancelled already if the job is not under way.
    pub(crate) fn watch(&self, job: Job) -> CancellationToken {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        if let Some(entry) = self.lock().get_mut(&job) {
            entry.watched = Some(guard);
        }
        token
    }

    /// How often a job was delivered before: the highest count of its messages.
    pub(crate) fn delivery_count(&self, job: Job) -> u32 {
        let jobs = self.lock();
        let messages = jobs.get(&job).into_iter().flat_map(|entry| &entry.messages);
        messages.map(|message| message.receipt.delivery_count).max().unwrap_or_default()
    }

    /// Whether one of a job's messages was delivered before.
    pub(crate) fn redelivered(&self, job: Job) -> Redelivered {
        Redelivered::from(self.delivery_count(job) > 0)
    }

    /// Ends jobs whose own effects are durable: publishes their follow-ups, then acknowledges their messages.
    /// Acknowledges the duplicates as well: they are of no use, and the first message's connection may be lost. Removes
    /// each job before its follow-up is published, as this same process may take the follow-up. Returns `None` when
    /// this was abandoned.
    pub(crate) async fn finish(&self, jobs: impl IntoIterator<Item = (Job, Option<FollowUp>)>) -> Option<()> {
        let mut done = Vec::new();
        for (job, follow_up) in jobs {
            let Some(InFlightEntry { messages, .. }) = self.lock().remove(&job) else { continue };
            if let Some(first) = messages.front() {
                self.gauge.of(first.receipt.lane).dec();
            }
            let parts = messages.into_iter().map(|message| message.ack);
            done.extend(SharedAck::attach_follow_up(parts.collect(), follow_up));
        }
        self.finisher.done(done).await
    }

    /// Ends a job that is not attempted: publishes its follow-up, then acknowledges the message that was judged.
    /// Returns the receipt of a duplicate that came meanwhile. The duplicate takes the job's place, and the caller has
    /// to judge it: it may stem from something that happened after this judgement, or be this very follow-up.
    pub(crate) async fn pass(&self, job: Job, follow_up: Option<FollowUp>) -> Option<Receipt> {
        let (judged, duplicate) = {
            let mut jobs = self.lock();
            let entry = jobs.get_mut(&job)?;
            entry.watched = None;
            let judged = entry.messages.pop_front();
            let duplicate = entry.messages.front().map(|message| message.receipt);
            if duplicate.is_none() {
                jobs.remove(&job);
            }
            (judged, duplicate)
        };
        if let Some(duplicate) = duplicate {
            self.gauge.of(duplicate.lane).inc();
        }
        if let Some(Message { ack, receipt, place }) = judged {
            self.gauge.of(receipt.lane).dec();
            drop(place);
            self.finisher.done(vec![(ack, follow_up)]).await;
        }
        duplicate
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Job, InFlightEntry>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
