//! The state: what ledger, broker and each process have. It is small and copied for each step. Times are minutes from now.

use std::{fmt, time::Duration};

use domain::RetrySchedule;
use time::OffsetDateTime;

use crate::{config::Budget, dispatcher::Dispatcher, ingest::Batch, leader::Leader, prelude::*};

/// The most deliveries of a configuration.
pub(crate) const DELIVERIES: usize = 2;
pub(crate) const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
/// Longer ago makes no difference: longer than any schedule of the model.
const LONG_AGO: OffsetDateTime = NOW.saturating_sub(time::Duration::minutes(9));

pub(crate) fn at(minutes: i8) -> OffsetDateTime {
    NOW + time::Duration::minutes(minutes.into())
}

pub(crate) fn minutes(at: OffsetDateTime) -> i8 {
    i8::try_from((at - NOW).whole_minutes()).unwrap_or(i8::MAX)
}

/// A number in a byte, so that a state is small.
pub(crate) fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The minutes of a due time a minute later. What is overdue is due now: how long makes no difference.
pub(crate) fn later(due: i8) -> i8 {
    (due - 1).max(0)
}

/// The same for a delivery's times.
pub(crate) fn tick(progress: &mut Progress) {
    let before = |at: OffsetDateTime, bound| (at - time::Duration::MINUTE).max(bound);
    progress.first_failed_at = progress.first_failed_at.map(|failed| before(failed, LONG_AGO));
    progress.next_attempt_at = progress.next_attempt_at.map(|due| before(due, NOW));
}

/// A small sorted collection, so that states with the same content are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bag<T, const N: usize>([Option<T>; N]);

/// The messages of a batch, of one job each.
pub(crate) type Messages = Bag<Message, DELIVERIES>;

impl<T: Copy + Ord, const N: usize> Bag<T, N> {
    pub(crate) const EMPTY: Self = Self([None; N]);

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + use<T, N> {
        self.0.into_iter().flatten()
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.0[0]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0[N - 1].is_some()
    }

    pub(crate) fn add(&mut self, one: T) {
        *self = self.iter().chain([one]).collect();
    }

    pub(crate) fn remove(&mut self, one: T) {
        let place = self.0.iter().position(|other| *other == Some(one));
        place.into_iter().for_each(|place| self.0[place] = None);
        *self = self.iter().collect();
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut T)) {
        self.0.iter_mut().flatten().for_each(change);
        *self = self.iter().collect();
    }
}

impl<T: Copy + Ord, const N: usize> FromIterator<T> for Bag<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut bag = Self::EMPTY;
        for (place, one) in all.into_iter().enumerate() {
            assert!(place < N, "the model has places for {N} of these: a configuration needs more");
            bag.0[place] = Some(one);
        }
        bag.0.sort_unstable_by_key(|one| (one.is_none(), *one));
        bag
    }
}

/// "Make attempt number `attempt` of this delivery." Of an event: number 0 of the delivery that it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Job {
    pub(crate) delivery: u8,
    pub(crate) attempt: u8,
}

impl Job {
    pub(crate) fn real(self) -> domain::Job {
        domain::Job { delivery: uuid::Uuid::from_u128(self.delivery.into()).into(), attempt: self.attempt.into() }
    }

    pub(crate) fn of(self) -> usize {
        self.delivery.into()
    }
}

/// A message on a queue of jobs or of events, or to be published there. It holds one job or two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) jobs: Bag<Job, DELIVERIES>,
    /// The message was delivered before, or comes from one that was.
    pub(crate) redelivered: bool,
    /// Minutes until it is due; on its queue, until it leaves that. 0 on a lane.
    pub(crate) wait: i8,
}

impl Message {
    pub(crate) fn of(jobs: impl IntoIterator<Item = Job>) -> Self {
        Self { jobs: jobs.into_iter().collect(), redelivered: false, wait: 0 }
    }

    /// As `Names::job_at`.
    pub(crate) fn queued(self, schedule: &RetrySchedule) -> Self {
        let wait = Duration::from_secs(60 * u64::from(self.wait.unsigned_abs()));
        let gap = schedule.gap_for(wait).min(wait).as_secs() / 60;
        Self { wait: i8::try_from(gap).unwrap_or(i8::MAX), ..self }
    }
}

pub(crate) fn first_job(messages: &Messages) -> Option<Job> {
    messages.first()?.jobs.first()
}

/// A lease of an entry of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lease {
    Free,
    /// Of a relay.
    Of(u8),
    /// Of a process that does not publish it any more: the lease ends by itself.
    OfNobody,
}

/// What the ledger has of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) progress: Progress,
    pub(crate) outbox: Option<Lease>,
    /// Its job in the outbox was held, and its message delivered before that.
    pub(crate) carries: bool,
    /// Held, and whether its message was delivered before.
    pub(crate) held: Option<bool>,
    /// Made, or attempted, since the sentinel of the rebuild under way was declared.
    pub(crate) is_published: bool,
    /// For the properties: the latest attempt that was made, the POSTs that repeated it, the minutes until the schedule allows
    /// the next one, and the attempts that preceded the latest resend.
    pub(crate) posted: u8,
    pub(crate) repeated: u8,
    pub(crate) earliest: i8,
    pub(crate) base: u16,
}

impl Row {
    pub(crate) fn new(state: DeliveryState, is_published: bool) -> Self {
        let (progress, outbox, carries, held) = (Progress { state, ..Progress::NEW }, None, false, None);
        Self { progress, outbox, carries, held, is_published, posted: 0, repeated: 0, earliest: 0, base: 0 }
    }

    pub(crate) fn waits(&self) -> bool {
        self.progress.state.is_waiting()
    }

    /// Minutes until its next attempt is due.
    pub(crate) fn wait(&self) -> i8 {
        self.progress.next_attempt_at.map_or(0, minutes).max(0)
    }

    /// Takes a new progress, if there is one.
    pub(crate) fn take(&mut self, new: Option<Progress>) -> bool {
        self.progress = new.unwrap_or(self.progress);
        new.is_some()
    }

    pub(crate) fn next_job(&self, delivery: usize) -> Job {
        Job { delivery: small(delivery), attempt: small(usize::from(self.progress.attempts) + 1) }
    }

    pub(crate) fn needs_message(&self, is_published: bool) -> bool {
        let (is_promised, is_held) = (self.outbox.is_some(), self.held.is_some());
        self.progress.needs_message(JobPlaces { is_promised, is_held, is_published })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { state, attempts, next_attempt_at, .. } = self.progress;
        let due = next_attempt_at.map(|_| format!(", due in {} min", self.wait())).unwrap_or_default();
        let outbox = self.outbox.map(|lease| format!(", in the outbox ({lease:?})")).unwrap_or_default();
        write!(f, "{state}, {attempts} attempts{due}{outbox}{}", if self.held.is_some() { ", held" } else { "" })
    }
}

/// The whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) events: Bag<Message, 4>,
    pub(crate) jobs: Bag<Message, 8>,
    pub(crate) rows: [Option<Row>; DELIVERIES],
    pub(crate) webhook: WebhookState,
    /// Its held jobs are to be published (a row of `held_webhooks`).
    pub(crate) wakes: bool,
    /// Its waiting deliveries are to be cancelled (a row of `cancellations`).
    pub(crate) is_cancelling: bool,
    pub(crate) ingests: Bag<Batch, 3>,
    pub(crate) dispatchers: [Dispatcher; 2],
    /// What each relay has leased, and is to publish. Of an empty batch, all is published and to be deleted.
    pub(crate) relays: [Option<Messages>; 2],
    pub(crate) leader: Leader,
    pub(crate) budget: Budget,
    /// For the properties: a dispatcher or an ingest was at work on it when the broker lost its disk.
    pub(crate) was_under_way: [bool; DELIVERIES],
}

impl State {
    /// Makes states equal that differ in nothing that counts.
    pub(crate) fn sort(&mut self) {
        self.dispatchers.iter_mut().for_each(Dispatcher::sort);
        for (_, row) in self.stored_mut().filter(|(_, row)| !row.waits()) {
            (row.progress.first_failed_at, row.earliest) = (None, 0);
        }
    }

    /// The row of a job's delivery, which exists as long as jobs do.
    pub(crate) fn row(&mut self, delivery: usize) -> &mut Row {
        self.rows[delivery].as_mut().unwrap_or_else(|| unreachable!("a job of a delivery that was never stored"))
    }

    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, Row)> + '_ {
        self.rows.iter().enumerate().filter_map(|(delivery, row)| Some((delivery, (*row)?)))
    }

    pub(crate) fn stored_mut(&mut self) -> impl Iterator<Item = (usize, &mut Row)> {
        self.rows.iter_mut().enumerate().filter_map(|(delivery, row)| Some((delivery, row.as_mut()?)))
    }

    /// Returns whether an ingest or a dispatcher is at work on a delivery.
    pub(crate) fn is_at_work(&self, delivery: usize) -> bool {
        let events = self.ingests.iter().flat_map(|batch| batch.events.iter().filter_map(|event| event.jobs.first()));
        events.chain(self.dispatchers.iter().flat_map(Dispatcher::jobs)).any(|job| job.of() == delivery)
    }

    /// Returns whether a message has a delivery's event or job, or will have, or somebody is at work on it.
    pub(crate) fn is_somewhere(&self, delivery: usize) -> bool {
        let batches = self.relays.iter().flatten().chain([&self.leader.found]).flat_map(Bag::iter);
        let taken = self.dispatchers.iter().flat_map(Dispatcher::usable);
        let mut all = self.events.iter().chain(self.jobs.iter()).chain(batches).chain(taken);
        self.is_at_work(delivery) || all.any(|message| message.jobs.iter().any(|job| job.of() == delivery))
    }
}
