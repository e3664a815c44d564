//! A dispatcher: the jobs that are under way in it, with the duplicates that joined them, and the messages that it has to
//! acknowledge.

use domain::{End, OutcomeClass, Record, RetrySchedule, Verdict};

use crate::{
    config::{Broken, Config},
    state::{DELIVERIES, Job, Message, NOW, Progress, State, Webhook, later, minutes, redelivered},
    step::{Actor, Steps},
};

const MESSAGES: usize = 3;
const SLOTS: usize = 2;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dispatcher {
    pub(crate) messages: [Option<Taken>; MESSAGES],
    pub(crate) slots: [Option<Slot>; SLOTS],
}

/// A message that is not acknowledged (`SharedAck`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Taken {
    pub(crate) message: Message,
    /// Its connection is there.
    is_usable: bool,
    /// Its jobs that are under way.
    is_undone: [bool; DELIVERIES],
    follow_ups: [Option<FollowUp>; DELIVERIES],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FollowUp {
    job: Job,
    due: i8,
    redelivered: bool,
}

/// A job that is under way (`UnderWay`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) job: Job,
    own: Part,
    duplicates: [Option<Part>; MESSAGES],
    phase: Phase,
}

/// A job's part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Part {
    taken: u8,
    redelivered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Begun,
    /// Its row was read.
    Found(Found),
    /// It waits for the holder.
    Held {
        is_slow: bool,
    },
    /// The holder has counted its duplicates, and runs its statement.
    Holding {
        is_slow: bool,
        duplicates: u8,
        redelivered: bool,
    },
    /// Its attempt was made, and is to be recorded. `is_ours`: the ledger has it, and the answer was lost.
    Made {
        progress: Progress,
        is_ours: bool,
        since: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Found {
    Attempt(Progress),
    Stale,
    Early(i8),
    PublishRetry(i8),
    Deleted,
}

impl Dispatcher {
    fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a message or a job of a delivery is here.
    pub(crate) fn has(&self, delivery: usize) -> bool {
        let mut taken = self.messages.iter().flatten();
        self.is_at(delivery) || taken.any(|taken| taken.is_usable && taken.message.has(delivery))
    }

    pub(crate) fn is_at(&self, delivery: usize) -> bool {
        self.slots.iter().flatten().any(|slot| slot.job.of() == delivery)
    }

    /// Sorts messages and jobs, so that states are equal that differ only in this order.
    pub(crate) fn sort(&mut self) {
        let mut places: [usize; MESSAGES] = std::array::from_fn(|place| place);
        places.sort_by_key(|place| (self.messages[*place].is_none(), self.messages[*place]));
        if !places.is_sorted() {
            let new = |part: &mut Part| {
                let place = places.iter().position(|old| *old == usize::from(part.taken)).unwrap_or_default();
                part.taken = u8::try_from(place).unwrap_or_default();
            };
            for slot in self.slots.iter_mut().flatten() {
                new(&mut slot.own);
                slot.duplicates.iter_mut().flatten().for_each(new);
            }
            self.messages = places.map(|place| self.messages[place]);
        }
        self.slots.sort_by_key(|slot| slot.map_or((true, None), |slot| (false, Some(slot.job))));
    }

    /// Returns whether a job is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    pub(crate) fn tick(&mut self) {
        for taken in self.messages.iter_mut().flatten() {
            taken.follow_ups.iter_mut().flatten().for_each(|one| one.due = later(one.due));
        }
        for slot in self.slots.iter_mut().flatten() {
            match &mut slot.phase {
                Phase::Found(Found::Attempt(progress)) | Phase::Made { progress, .. } => progress.tick(),
                Phase::Found(Found::Early(due) | Found::PublishRetry(due)) => *due = later(*due),
                _ => {}
            }
        }
    }

    /// Its connection to the broker ends. Returns the messages that go back to their queue.
    pub(crate) fn lose(&mut self, broken: Option<Broken>) -> [Option<Message>; MESSAGES] {
        let mut back = [None; MESSAGES];
        for (place, back) in back.iter_mut().enumerate() {
            let Some(taken) = self.messages[place].as_mut().filter(|taken| taken.is_usable) else { continue };
            taken.is_usable = false;
            let (is_done, message) = (taken.is_done(), Message { redelivered: true, ..taken.message });
            let is_held = self.slots.iter().flatten().any(|slot| {
                usize::from(slot.own.taken) == place && matches!(slot.phase, Phase::Held { .. } | Phase::Holding { .. })
            });
            if !(is_held && broken == Some(Broken::AcknowledgedBeforeHeld)) {
                *back = Some(message);
            }
            if is_done && broken != Some(Broken::FollowUpOfLostMessage) {
                self.messages[place] = None;
            }
        }
        back
    }

    fn is_usable(&self, part: Part) -> bool {
        self.messages[usize::from(part.taken)].is_some_and(|taken| taken.is_usable)
    }

    /// As `UnderWay::end` and `SharedAck::attach_follow_up`: ends a job with the first of its duplicates. The first message
    /// that can still be acknowledged gets the follow-up. The job continues with the next duplicate.
    fn end(&mut self, place: usize, most: usize, mut follow_up: Option<FollowUp>, broken: Option<Broken>) {
        let Some(Slot { job, own, duplicates, .. }) = self.slots[place].take() else { return };
        let count = duplicates.iter().flatten().count().min(most);
        let parts: Vec<Part> = std::iter::once(own).chain(duplicates.into_iter().flatten().take(count)).collect();
        let chosen = parts.iter().position(|part| self.is_usable(*part)).unwrap_or_default();
        for (number, part) in parts.into_iter().enumerate() {
            let message = &mut self.messages[usize::from(part.taken)];
            let Some(taken) = message else { continue };
            if number == chosen {
                follow_up.take().into_iter().for_each(|one| put(&mut taken.follow_ups, one));
            }
            for (of, is_undone) in taken.message.jobs.iter().zip(&mut taken.is_undone) {
                *is_undone &= *of != Some(job);
            }
            let is_dropped = !taken.is_usable && broken != Some(Broken::FollowUpOfLostMessage);
            if is_dropped && taken.is_done() {
                *message = None;
            }
        }
        let mut rest = duplicates.into_iter().flatten().skip(count);
        self.slots[place] = rest.next().map(|own| {
            let mut duplicates = [None; MESSAGES];
            rest.for_each(|part| put(&mut duplicates, part));
            Slot { job, own, duplicates, phase: Phase::Begun }
        });
    }
}

impl Taken {
    fn is_done(&self) -> bool {
        !self.is_undone.contains(&true)
    }
}

/// Puts one into a free place: there are enough.
fn put<T>(places: &mut [Option<T>], one: T) {
    *places.iter_mut().find(|place| place.is_none()).unwrap_or_else(|| unreachable!("no free place")) = Some(one);
}

impl Slot {
    fn begun(job: Job, own: Part) -> Self {
        Self { job, own, duplicates: [None; MESSAGES], phase: Phase::Begun }
    }

    /// As `UnderWay::handed_out_before`.
    fn was_redelivered(&self) -> bool {
        self.own.redelivered || self.duplicates.iter().flatten().any(|one| one.redelivered)
    }

    fn end(&self, end: End<()>) -> Option<FollowUp> {
        let (job, due, redelivered) = match end.left()? {
            End::Retry(due) => (Job { attempt: self.job.attempt + 1, ..self.job }, due, false),
            End::Again(due, handed_out_before) => (self.job, due, handed_out_before > 0),
            _ => return None,
        };
        Some(FollowUp { job, due: minutes(due).max(0), redelivered })
    }
}

/// Ends a job of a dispatcher as `Settler::end_all` does.
fn end_all(state: &mut State, at: (usize, usize), end: End<()>, config: &Config) {
    let dispatcher = &mut state.dispatchers[at.0];
    let Some(slot) = dispatcher.slots[at.1] else { return };
    let own = usize::from(slot.own.taken);
    let most = match end {
        End::NotNeeded if config.is(Broken::DuplicatesEndWithStale) => usize::MAX,
        End::Again(..) if config.is(Broken::DuplicatesEndWithAgain) => usize::MAX,
        _ => end.duplicates(),
    };
    dispatcher.end(at.1, most, slot.end(end), config.broken);
    // To acknowledge a message that is not needed later than here makes no difference.
    let is_over = |taken: &Taken| taken.is_done() && taken.follow_ups.iter().all(Option::is_none);
    if end == End::NotNeeded && dispatcher.messages[own].as_ref().is_some_and(is_over) {
        dispatcher.messages[own] = None;
    }
}

pub(crate) fn steps(steps: &mut Steps, number: usize) {
    let dispatcher = &steps.state.dispatchers[number];
    take(steps, number);
    for (place, slot) in dispatcher.slots.iter().enumerate() {
        let Some(slot) = slot else { continue };
        match slot.phase {
            Phase::Begun => judge(steps, (number, place), *slot),
            Phase::Found(found) => go_on(steps, (number, place), *slot, found),
            Phase::Held { .. } | Phase::Holding { .. } => hold(steps, (number, place), *slot),
            Phase::Made { .. } => record(steps, (number, place), *slot),
        }
    }
    for (place, taken) in dispatcher.messages.iter().enumerate() {
        if let Some(taken) = taken.filter(Taken::is_done) {
            publish_then_ack(steps, (number, place), taken);
        }
    }
    let (actor, broken) = (Actor::Dispatcher(number), steps.config.broken);
    if dispatcher.messages.iter().flatten().any(|taken| taken.is_usable) {
        let why = (None, "loses its connection: its messages are redelivered");
        steps.fault((actor, ""), why, |state| lose(state, number, broken));
    }
    if !dispatcher.is_idle() {
        steps.fault((actor, ""), (None, "dies: its messages are redelivered"), |state| {
            lose(state, number, broken);
            state.dispatchers[number] = Dispatcher::default();
        });
    }
}

fn take(steps: &mut Steps, number: usize) {
    let State { dispatchers, jobs, .. } = steps.state;
    // Both are alike.
    if number > 0 && dispatchers.iter().all(Dispatcher::is_idle) {
        return;
    }
    let Some(free) = dispatchers[number].messages.iter().position(Option::is_none) else { return };
    for message in jobs.distinct().filter(|message| message.wait == 0) {
        let of = |slot: &Option<Slot>, job| slot.is_some_and(|slot| slot.job == job);
        let slots = &dispatchers[number].slots;
        let new = message.jobs.iter().flatten().filter(|job| !slots.iter().any(|slot| of(slot, **job))).count();
        if slots.iter().filter(|slot| slot.is_none()).count() < new {
            continue;
        }
        steps.usual((Actor::Dispatcher(number), "Intake::take"), (message.jobs[0], "a message comes"), |state| {
            state.jobs.remove(message);
            let Dispatcher { messages, slots } = &mut state.dispatchers[number];
            let is_undone = message.jobs.map(|job| job.is_some());
            messages[free] = Some(Taken { message, is_usable: true, is_undone, follow_ups: [None; DELIVERIES] });
            let part = Part { taken: u8::try_from(free).unwrap_or_default(), redelivered: message.redelivered };
            for job in message.jobs.into_iter().flatten() {
                let place = slots.iter().position(|slot| of(slot, job));
                match place.and_then(|place| slots[place].as_mut()) {
                    Some(slot) => put(&mut slot.duplicates, part),
                    None => put(slots, Slot::begun(job, part)),
                }
            }
        });
    }
}

fn set(state: &mut State, at: (usize, usize), phase: Phase) {
    if let Some(slot) = &mut state.dispatchers[at.0].slots[at.1] {
        slot.phase = phase;
    }
}

fn judge(steps: &mut Steps, at: (usize, usize), slot: Slot) {
    let State { rows, webhook, .. } = steps.state;
    let Some(row) = rows[slot.job.of()] else { return };
    let is_redelivered = slot.own.redelivered && !steps.config.is(Broken::RedeliveredTakenForNew);
    let verdict = row.progress.real().judge(slot.job.real(), redelivered(is_redelivered), NOW, &steps.config.schedule);
    let (phase, note) = match (verdict, webhook) {
        (Verdict::Attempt, Webhook::Active) => (Phase::Found(Found::Attempt(row.progress)), "to be attempted"),
        (Verdict::Attempt, Webhook::Paused) => (Phase::Held { is_slow: false }, "the webhook is paused"),
        (Verdict::Attempt, Webhook::Deleted) => (Phase::Found(Found::Deleted), "the webhook is deleted"),
        (Verdict::Stale, _) if steps.config.is(Broken::StaleAttempted) => {
            (Phase::Found(Found::Attempt(row.progress)), "stale, and to be attempted")
        }
        (Verdict::Early(_), _) if steps.config.is(Broken::EarlyAttempted) => {
            (Phase::Found(Found::Attempt(row.progress)), "early, and to be attempted")
        }
        (Verdict::Stale, _) => (Phase::Found(Found::Stale), "stale"),
        (Verdict::Early(due), _) => (Phase::Found(Found::Early(minutes(due))), "early"),
        (Verdict::PublishRetry(due), _) => {
            (Phase::Found(Found::PublishRetry(minutes(due))), "recorded, its retry may not have been published")
        }
    };
    steps.usual((Actor::Dispatcher(at.0), "Line::judge"), (Some(slot.job), note), |state| set(state, at, phase));
}

/// What follows from the row as it was read.
fn go_on(steps: &mut Steps, at: (usize, usize), slot: Slot, found: Found) {
    let (config, actor) = (steps.config, Actor::Dispatcher(at.0));
    let handed_out = u32::from(slot.was_redelivered() && !config.is(Broken::AgainForgetsDeliveries));
    let progress = match found {
        Found::Attempt(progress) => progress,
        Found::Deleted => {
            return steps.usual((actor, "Line::cancel"), (Some(slot.job), "the delivery is cancelled"), |state| {
                let progress = &mut state.row(slot.job.of()).progress;
                progress.take(progress.real().cancelled());
                end_all(state, at, End::Done, config);
            });
        }
        Found::Stale | Found::Early(_) | Found::PublishRetry(_) => {
            let (end, note) = match found {
                Found::Early(due) => (End::Again(crate::state::at(due), handed_out), "ends, to be published again"),
                Found::PublishRetry(due) => (End::Retry(crate::state::at(due)), "ends, its retry to be published"),
                _ => (End::NotNeeded, "ends"),
            };
            return steps.usual((actor, "Settler::end_all"), (Some(slot.job), note), |state| {
                end_all(state, at, end, config);
            });
        }
    };
    let dispatcher = &steps.state.dispatchers[at.0];
    if !std::iter::once(slot.own).chain(slot.duplicates.into_iter().flatten()).any(|part| dispatcher.is_usable(part)) {
        let note = "ends, as its message was lost";
        return steps.usual((actor, "UnderWay::is_usable"), (Some(slot.job), note), |state| {
            end_all(state, at, End::NotNeeded, config);
        });
    }
    for (class, note) in [(OutcomeClass::Success, "POST: succeeds"), (OutcomeClass::Status, "POST: fails")] {
        let made = after_attempt(progress, class, config);
        let since = steps.state.leader.is_rebuilding();
        steps.usual((actor, "Sender::attempt"), (Some(slot.job), note), |state| {
            let row = state.row(slot.job.of());
            if slot.job.attempt > row.posted {
                (row.posted, row.repeated) = (slot.job.attempt, 0);
            } else {
                row.repeated += 1;
            }
            set(state, at, Phase::Made { progress: made, is_ours: false, since });
        });
    }
    not_now(steps, at, slot, (progress, handed_out));
}

/// An attempt that is to be made finds no slot, or no descriptor.
fn not_now(steps: &mut Steps, at: (usize, usize), slot: Slot, (progress, handed_out): (Progress, u32)) {
    let (config, actor) = (steps.config, Actor::Dispatcher(at.0));
    let refused = (Some(slot.job), "no slot, as the webhook is slow");
    steps.wish(
        |budget| &mut budget.holds,
        (actor, "Lanes::admit"),
        refused,
        |state| {
            set(state, at, Phase::Held { is_slow: true });
        },
    );
    let postponed = (Some(slot.job), "no descriptor: again in a minute");
    steps.wish(
        |budget| &mut budget.lacks,
        (actor, "Line::postpone"),
        postponed,
        |state| {
            let until = crate::state::at(1);
            let row = &mut state.row(slot.job.of()).progress;
            row.take(row.real().postponed(progress.attempts.into(), until));
            end_all(state, at, End::Again(until, handed_out), config);
        },
    );
}

fn after_attempt(progress: Progress, class: OutcomeClass, config: &Config) -> Progress {
    let endless = || -> RetrySchedule { "1m,2m,3m,4m,5m,6m,7m,8m".parse().unwrap_or_default() };
    let schedule = if config.is(Broken::NothingIsDropped) { &endless() } else { &config.schedule };
    progress.real().after_attempt(class, NOW, NOW, schedule).into()
}

fn hold(steps: &mut Steps, at: (usize, usize), slot: Slot) {
    let (config, actor) = (steps.config, Actor::Dispatcher(at.0));
    let (is_slow, duplicates, redelivered) = match slot.phase {
        Phase::Held { is_slow } => {
            let duplicates = u8::try_from(slot.duplicates.iter().flatten().count()).unwrap_or_default();
            let phase = Phase::Holding { is_slow, duplicates, redelivered: slot.was_redelivered() };
            return steps.usual((actor, "holder::run"), (Some(slot.job), "its duplicates are counted"), |state| {
                set(state, at, phase);
            });
        }
        Phase::Holding { is_slow, duplicates, redelivered } => (is_slow, duplicates, redelivered),
        _ => return,
    };
    let is_held = match steps.state.webhook {
        Webhook::Active => is_slow || config.is(Broken::HeldAfterActivation),
        Webhook::Paused => true,
        Webhook::Deleted => false,
    };
    let note = if is_held { "the job is held, and its messages end" } else { "not held: to be judged again" };
    steps.usual((actor, "Ledger::jobs_hold"), (Some(slot.job), note), |state| {
        if !is_held {
            return set(state, at, Phase::Begun);
        }
        state.wakes |= is_slow && state.webhook == Webhook::Active;
        let held = &mut state.row(slot.job.of()).held;
        *held = match *held {
            Some(first) if config.is(Broken::SecondHoldForgetsDeliveries) => Some(first),
            first => Some(first.unwrap_or_default() || redelivered),
        };
        state.dispatchers[at.0].end(at.1, duplicates.into(), None, config.broken);
    });
}

fn record(steps: &mut Steps, at: (usize, usize), slot: Slot) {
    let Phase::Made { progress: made, is_ours, since } = slot.phase else { return };
    let (config, actor) = (steps.config, Actor::Dispatcher(at.0));
    let Some(row) = steps.state.rows[slot.job.of()] else { return };
    let (before, after) = (row.progress.real(), made.real());
    let recorded = before.recorded(&after).map(|new| match before.run_base == after.run_base {
        false if config.is(Broken::RecordOverwritesResend) => after,
        true if config.is(Broken::RecordOverwritesCancellation) => after,
        _ => new,
    });
    let commit = move |state: &mut State| {
        let row = state.row(slot.job.of());
        if row.progress.take(recorded) {
            row.tried_since = since;
            row.earliest = row.progress.due.unwrap_or_default();
        }
    };
    let record = match recorded {
        Some(new) => Record::Taken { state: new.state, next_attempt_at: new.next_attempt_at },
        None if is_ours && before.attempts == after.attempts => {
            Record::Taken { state: before.state, next_attempt_at: before.next_attempt_at }
        }
        None => Record::Superseded(before),
    };
    let is_redelivered = slot.was_redelivered() && !config.is(Broken::RedeliveredTakenForNew);
    let end = match record.retry(slot.job.real(), redelivered(is_redelivered), NOW, &config.schedule) {
        Some(due) if !config.is(Broken::RecordedWithoutFollowUp) => End::Retry(due),
        _ => End::Done,
    };
    let note = match record {
        Record::Taken { .. } => "recorded, and ends",
        _ => "was recorded by another one, and ends",
    };
    steps.usual((actor, "Ledger::attempts_record"), (Some(slot.job), note), |state| {
        commit(state);
        end_all(state, at, end, config);
    });
    if recorded.is_some() {
        let note = "recorded, and the commit's answer is lost";
        steps.fault((actor, "Ledger::attempts_record"), (Some(slot.job), note), |state| {
            commit(state);
            set(state, at, Phase::Made { progress: made, is_ours: true, since });
        });
    }
}

fn publish_then_ack(steps: &mut Steps, (number, place): (usize, usize), taken: Taken) {
    let (actor, schedule) = (Actor::Dispatcher(number), &steps.config.schedule);
    let broken = steps.config.broken;
    if taken.follow_ups.iter().all(Option::is_none) {
        return steps.usual(
            (actor, "Acker::ack_all"),
            (taken.message.jobs[0], "the message is acknowledged"),
            |state| {
                state.dispatchers[number].messages[place] = None;
            },
        );
    }
    let publish = |state: &mut State| {
        for FollowUp { job, due, redelivered } in taken.follow_ups.into_iter().flatten() {
            state.jobs.add(Message { redelivered, ..Message::at(job, due, schedule) });
        }
    };
    let job = taken.follow_ups.into_iter().flatten().next().map(|one| one.job);
    let note = "the follow-up is published and confirmed, the message acknowledged";
    steps.usual((actor, "Settler::publish_then_ack"), (job, note), |state| {
        publish(state);
        state.dispatchers[number].messages[place] = None;
    });
    let note = "published, and the confirm is lost: to be published again";
    steps.fault((actor, "Settler::publish_then_ack"), (job, note), publish);
    let note = "published, and the connection is lost before the acknowledgement";
    steps.fault((actor, "Settler::publish_then_ack"), (job, note), |state| {
        publish(state);
        lose(state, number, broken);
    });
}

/// The connection ends: messages are redelivered.
fn lose(state: &mut State, number: usize, broken: Option<Broken>) {
    let back = state.dispatchers[number].lose(broken);
    back.into_iter().flatten().for_each(|message| state.jobs.add(message));
}
