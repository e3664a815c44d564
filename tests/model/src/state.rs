//! The state: what ledger, broker and each process have. It is small and copied for each step. Times are minutes from now.

use std::{fmt, time::Duration};

use domain::{DeliveryState, JobPlaces, Redelivered, RetrySchedule};
use time::OffsetDateTime;

use crate::{config::Budget, dispatcher::Dispatcher, ingest::Batch, leader::Leader, relay::Relay};

/// The most deliveries of a configuration.
pub(crate) const DELIVERIES: usize = 2;
pub(crate) const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
/// Longer ago makes no difference: longer than any schedule of the model.
const LONG_AGO: i8 = -9;

pub(crate) fn at(minutes: i8) -> OffsetDateTime {
    NOW + time::Duration::minutes(minutes.into())
}

pub(crate) fn minutes(at: OffsetDateTime) -> i8 {
    i8::try_from((at - NOW).whole_minutes()).unwrap_or(i8::MAX)
}

/// A small sorted collection, so that states with the same content are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bag<T, const N: usize>([Option<T>; N]);

impl<T: Copy + Ord, const N: usize> Default for Bag<T, N> {
    fn default() -> Self {
        Self([None; N])
    }
}

impl<T: Copy + Ord, const N: usize> Bag<T, N> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.0.iter().map_while(|one| *one)
    }

    /// Each value once.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = T> + '_ {
        let is_first = |(place, one): &(usize, T)| *place == 0 || self.0[place - 1] != Some(*one);
        self.iter().enumerate().filter(is_first).map(|(_, one)| one)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0[N - 1].is_some()
    }

    pub(crate) fn add(&mut self, one: T) {
        assert!(!self.is_full(), "the model has places for {N} of these: a configuration needs more");
        self.0[N - 1] = Some(one);
        self.sort();
    }

    pub(crate) fn remove(&mut self, one: T) {
        if let Some(place) = self.0.iter().position(|other| *other == Some(one)) {
            self.0[place] = None;
            self.sort();
        }
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut T)) {
        self.0.iter_mut().flatten().for_each(change);
        self.sort();
    }

    fn sort(&mut self) {
        self.0.sort_unstable_by_key(|one| (one.is_none(), *one));
    }
}

/// "Make attempt number `attempt` of this delivery."
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Job {
    pub(crate) delivery: u8,
    pub(crate) attempt: u8,
}

impl Job {
    pub(crate) fn real(self) -> domain::Job {
        let delivery = uuid::Uuid::from_u128(self.delivery.into()).into();
        domain::Job { delivery, attempt: self.attempt.into() }
    }

    pub(crate) fn of(self) -> usize {
        self.delivery.into()
    }
}

/// A message on a queue of jobs. It holds one job or two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) jobs: [Option<Job>; DELIVERIES],
    /// It was handed out before, or carries that a message was from which it comes.
    pub(crate) redelivered: bool,
    /// Minutes until it leaves its retry queue; 0 on a lane.
    pub(crate) wait: i8,
}

impl Message {
    pub(crate) const fn due(job: Job) -> Self {
        Self { jobs: [Some(job), None], redelivered: false, wait: 0 }
    }

    /// As `Names::job_at`.
    pub(crate) fn at(job: Job, due: i8, schedule: &RetrySchedule) -> Self {
        let Ok(wait @ 1..) = u64::try_from(due) else { return Self::due(job) };
        let wait = Duration::from_secs(60 * wait);
        let gap = schedule.gap_for(wait).min(wait).as_secs() / 60;
        Self { wait: i8::try_from(gap).unwrap_or(i8::MAX), ..Self::due(job) }
    }

    pub(crate) fn has(&self, delivery: usize) -> bool {
        self.jobs.iter().flatten().any(|job| job.of() == delivery)
    }
}

/// A message on the queue of events. Event n is that of delivery n.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Event {
    pub(crate) delivery: u8,
    pub(crate) redelivered: bool,
}

/// `domain::Progress`, small.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    pub(crate) state: DeliveryState,
    pub(crate) attempts: u8,
    pub(crate) run_base: u8,
    pub(crate) failed: Option<i8>,
    pub(crate) due: Option<i8>,
}

impl Progress {
    pub(crate) fn real(&self) -> domain::Progress {
        domain::Progress {
            state: self.state,
            attempts: self.attempts.into(),
            run_base: self.run_base.into(),
            first_failed_at: self.failed.map(at),
            next_attempt_at: self.due.map(at),
        }
    }

    /// Takes a new progress, if there is one.
    pub(crate) fn take(&mut self, new: Option<domain::Progress>) -> bool {
        if let Some(new) = new {
            *self = new.into();
        }
        new.is_some()
    }

    pub(crate) fn tick(&mut self) {
        self.failed = self.failed.map(|minute| (minute - 1).max(LONG_AGO));
        self.due = self.due.map(later);
    }
}

impl From<domain::Progress> for Progress {
    fn from(real: domain::Progress) -> Self {
        let small = |number: u16| u8::try_from(number).unwrap_or(u8::MAX);
        Self {
            state: real.state,
            attempts: small(real.attempts),
            run_base: small(real.run_base),
            failed: real.first_failed_at.map(minutes),
            due: real.next_attempt_at.map(minutes),
        }
    }
}

/// A due time a minute later. What is overdue is due now: how long makes no difference.
pub(crate) fn later(due: i8) -> i8 {
    (due - 1).max(0)
}

/// An entry of the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lease {
    Free,
    Of(u8),
    /// Of a process that does not publish it any more: the lease ends by itself.
    OfNobody,
}

/// What the ledger has of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) progress: Progress,
    pub(crate) outbox: Option<Lease>,
    /// Its job in the outbox was held, and its message handed out before that.
    pub(crate) carries: bool,
    /// Held, and whether its message was handed out before.
    pub(crate) held: Option<bool>,
    /// Made since the sentinel of the rebuild under way was declared, and attempted since then.
    pub(crate) made_since: bool,
    pub(crate) tried_since: bool,
    /// For the properties: the latest attempt that was made, the POSTs that repeated it, the minutes until the schedule allows
    /// the next one, and the attempts that preceded the latest resend.
    pub(crate) posted: u8,
    pub(crate) repeated: u8,
    pub(crate) earliest: i8,
    pub(crate) base: u8,
}

impl Row {
    pub(crate) fn new(state: DeliveryState, made_since: bool) -> Self {
        let progress = domain::Progress { state, ..domain::Progress::NEW }.into();
        let (outbox, carries, held, tried_since) = (None, false, None, false);
        Self { progress, outbox, carries, held, made_since, tried_since, posted: 0, repeated: 0, earliest: 0, base: 0 }
    }

    pub(crate) fn waits(&self) -> bool {
        self.progress.state.is_waiting()
    }

    pub(crate) fn is_due(&self) -> bool {
        self.progress.due.unwrap_or_default() <= 0
    }

    pub(crate) fn next_job(&self, delivery: usize) -> Job {
        let delivery = u8::try_from(delivery).unwrap_or(u8::MAX);
        Job { delivery, attempt: self.progress.attempts + 1 }
    }

    pub(crate) fn places(&self) -> JobPlaces {
        JobPlaces { is_promised: self.outbox.is_some(), is_held: self.held.is_some() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { state, attempts, due, .. } = self.progress;
        write!(f, "{state}, {attempts} attempts")?;
        match due {
            Some(0) => write!(f, ", due now")?,
            Some(minutes) => write!(f, ", due in {minutes} min")?,
            None => {}
        }
        match self.outbox {
            Some(Lease::Free) => write!(f, ", in the outbox")?,
            Some(_) => write!(f, ", in the outbox (leased)")?,
            None => {}
        }
        if self.held.is_some() { write!(f, ", held") } else { Ok(()) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Webhook {
    Active,
    Paused,
    Deleted,
}

/// The whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) events: Bag<Event, 4>,
    pub(crate) jobs: Bag<Message, 8>,
    pub(crate) rows: [Option<Row>; DELIVERIES],
    pub(crate) webhook: Webhook,
    /// Its held jobs are to be published (a row of `held_webhooks`).
    pub(crate) wakes: bool,
    /// Its waiting deliveries are to be cancelled (a row of `webhook_tasks`).
    pub(crate) is_cancelling: bool,
    pub(crate) ingests: Bag<Batch, 3>,
    pub(crate) dispatchers: [Dispatcher; 2],
    pub(crate) relays: [Relay; 2],
    pub(crate) leader: Leader,
    pub(crate) budget: Budget,
    /// Events that were accepted, and have to have a row.
    pub(crate) accepted: [bool; DELIVERIES],
    /// For the properties: a dispatcher, an ingest or a relay was at work on it when the broker lost its disk.
    pub(crate) was_under_way: [bool; DELIVERIES],
}

impl State {
    /// The row of a job's delivery, which exists as long as jobs do.
    pub(crate) fn row(&mut self, delivery: usize) -> &mut Row {
        self.rows[delivery].as_mut().unwrap_or_else(|| unreachable!("a job of a delivery that was never stored"))
    }

    /// Makes states equal that differ in nothing that counts.
    pub(crate) fn sort(&mut self) {
        self.dispatchers.iter_mut().for_each(Dispatcher::sort);
        for row in self.rows.iter_mut().flatten().filter(|row| !row.waits()) {
            (row.progress.failed, row.earliest) = (None, 0);
        }
    }

    pub(crate) fn stored(&self) -> impl Iterator<Item = (usize, Row)> + '_ {
        self.rows.iter().enumerate().filter_map(|(delivery, row)| Some((delivery, (*row)?)))
    }
}

pub(crate) fn redelivered(flag: bool) -> Redelivered {
    Redelivered::from(flag)
}
