//! A dispatcher: the jobs that are under way in it, with the duplicates that joined them, and the messages that it has to
//! acknowledge.

use domain::{End, OutcomeClass, Record, Redelivered, Verdict};

use crate::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Dispatcher {
    messages: Bag<Taken, 3>,
    slots: [Option<Slot>; 2],
}

/// The jobs of a message that are under way, each with the number of messages of the job that have come before.
type Parts = Bag<(Job, u8), DELIVERIES>;

/// A message that is not acknowledged (`JobAck`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Taken {
    message: Message,
    /// Its connection is there.
    is_usable: bool,
    parts: Parts,
    follow_ups: Messages,
}

/// A job that is under way (`UnderWay`).
type Slot = (Job, Phase);

/// An attempt that was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Made {
    /// The progress after it.
    progress: Progress,
    /// The ledger has it, and the answer was lost.
    is_recorded: bool,
    /// It was made since the sentinel of the rebuild under way was declared.
    is_since: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Begun,
    /// Its row was read: the attempt is to be made, the delivery to be cancelled, or neither.
    Attempt(Progress),
    Cancel,
    Skip(Verdict),
    /// It waits for the holder.
    Held(HoldReason),
    /// The holder has counted its duplicates, and runs its statement.
    Holding(HoldReason, u8, bool),
    /// Its attempt was made, and is to be recorded.
    Made(Made),
}

impl Dispatcher {
    pub(crate) const IDLE: Self = Self { messages: Bag::EMPTY, slots: [None; 2] };

    /// The jobs that are under way.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> + '_ {
        self.slots.iter().flatten().map(|(job, _)| *job)
    }

    /// The messages that can be acknowledged.
    pub(crate) fn usable(&self) -> impl Iterator<Item = Message> + use<> {
        self.messages.iter().filter(|taken| taken.is_usable).map(|taken| taken.message)
    }

    /// Sorts jobs, so that states are equal that differ only in their order.
    pub(crate) fn sort(&mut self) {
        self.slots.sort_unstable_by_key(|slot| slot.map(|(job, _)| job));
    }

    pub(crate) fn tick(&mut self) {
        self.messages.each(|taken| taken.follow_ups.each(|one| one.wait = later(one.wait)));
        for (_, phase) in self.slots.iter_mut().flatten() {
            match phase {
                Phase::Attempt(progress) | Phase::Made(Made { progress, .. }) => tick(progress),
                Phase::Skip(Verdict::Early(due) | Verdict::PublishRetry(due)) => *due = at(later(minutes(*due))),
                _ => {}
            }
        }
    }

    /// The messages of a job that is under way, and their numbers.
    fn parts(&self, job: Job) -> impl Iterator<Item = (usize, Taken)> + use<> {
        self.messages.iter().filter_map(move |taken| Some((number_of(&taken, job)?, taken)))
    }

    /// Returns true if a message of the job was redelivered (`UnderWay::delivery_count`).
    fn was_redelivered(&self, job: Job) -> bool {
        self.parts(job).any(|(_, taken)| taken.message.redelivered)
    }

    fn set(&mut self, job: Job, phase: Phase) {
        self.slots.iter_mut().flatten().filter(|slot| slot.0 == job).for_each(|slot| slot.1 = phase);
    }

    /// Ends a job with the duplicates that its end takes along (`Settler::end_all`).
    fn end_all(&mut self, job: Job, end: End<()>, config: &Config) {
        let ends_with_all = match end {
            End::NotNeeded => config.is(Broken::DuplicatesEndWithStale),
            _ => config.is(Broken::DuplicatesEndWithAgain),
        };
        self.end(job, if ends_with_all { usize::MAX } else { end.duplicates() }, end, config);
    }

    /// Ends a job with the first of its duplicates (`UnderWay::end`). The first message that can still be acknowledged gets
    /// the follow-up (`JobAck::attach_follow_up`). The job continues with the next duplicate.
    fn end(&mut self, job: Job, duplicates: usize, end: End<()>, config: &Config) {
        let usable = self.parts(job).filter(|(number, taken)| *number <= duplicates && taken.is_usable);
        let chosen = usable.map(|(number, _)| number).min().unwrap_or_default();
        let change = |mut taken: Taken| {
            let Some(number) = number_of(&taken, job) else { return Some(taken) };
            taken.parts.remove((job, small(number)));
            if number > duplicates {
                taken.parts.add((job, small(number - duplicates - 1)));
            } else if number == chosen {
                follow_up(job, end).into_iter().for_each(|message| taken.follow_ups.add(message));
            }
            // To acknowledge a message that is not needed later than here makes no difference.
            let is_over = end == End::NotNeeded && number == 0 && taken.follow_ups == Bag::EMPTY
                || !taken.is_usable && !config.is(Broken::FollowUpOfLostMessage);
            (!(is_over && taken.parts == Bag::EMPTY)).then_some(taken)
        };
        self.messages = self.messages.iter().filter_map(change).collect();
        let is_left = self.parts(job).next().is_some();
        self.set(job, Phase::Begun);
        self.slots = self.slots.map(|slot| slot.filter(|slot| is_left || slot.0 != job));
    }
}

/// The number of messages of a job that have come before this one, if the job is under way.
fn number_of(taken: &Taken, job: Job) -> Option<usize> {
    taken.parts.iter().find(|(of, _)| *of == job).map(|(_, number)| number.into())
}

fn follow_up(job: Job, end: End<()>) -> Option<Message> {
    let (job, due, redelivered) = match end {
        End::Retry(due) => (Job { attempt: job.attempt + 1, ..job }, due, false),
        End::Again(due, delivery_count) => (job, due, delivery_count > 0),
        _ => return None,
    };
    Some(Message { redelivered, wait: minutes(due).max(0), ..Message::of([job]) })
}

/// Its connection to the broker ends: messages go back to their queue.
pub(crate) fn lose(state: &mut State, number: usize, config: &Config) {
    let dispatcher = state.dispatchers[number];
    let is_held = |(job, number): (Job, u8)| {
        let mut slots = dispatcher.slots.iter().flatten().filter(|slot| number == 0 && slot.0 == job);
        slots.any(|(_, phase)| matches!(phase, Phase::Held(_) | Phase::Holding(..)))
    };
    for taken in dispatcher.messages.iter().filter(|taken| taken.is_usable) {
        if !(config.is(Broken::AcknowledgedBeforeHeld) && taken.parts.iter().any(is_held)) {
            state.jobs.add(Message { redelivered: !config.is(Broken::RedeliveredTakenForNew), ..taken.message });
        }
    }
    let is_kept = |taken: &Taken| taken.parts != Bag::EMPTY || config.is(Broken::FollowUpOfLostMessage);
    let lost = dispatcher.messages.iter().filter(is_kept).map(|taken| Taken { is_usable: false, ..taken });
    state.dispatchers[number].messages = lost.collect();
}

pub(crate) fn steps(steps: &mut Steps, number: usize) {
    let (config, dispatcher) = (steps.config, &steps.state.dispatchers[number]);
    // Both are alike while they are idle.
    if number == 0 || steps.state.dispatchers != [Dispatcher::IDLE; 2] {
        take(steps, number);
    }
    for slot in dispatcher.slots.iter().flatten() {
        step(steps, number, *slot);
    }
    for taken in dispatcher.messages.iter().filter(|taken| taken.parts == Bag::EMPTY) {
        publish_then_ack(steps, number, taken);
    }
    if dispatcher.usable().next().is_some() {
        let lost = "loses its connection: its messages are redelivered";
        steps.may(May::Fault, ("", None), lost, |state| lose(state, number, config));
    }
    if *dispatcher != Dispatcher::IDLE {
        steps.may(May::Fault, ("", None), "dies: its messages are redelivered", |state| {
            lose(state, number, config);
            state.dispatchers[number] = Dispatcher::IDLE;
        });
    }
}

fn take(steps: &mut Steps, number: usize) {
    let (dispatcher, jobs) = (&steps.state.dispatchers[number], &steps.state.jobs);
    let free = dispatcher.slots.iter().filter(|slot| slot.is_none()).count();
    for message in jobs.iter().filter(|message| message.wait == 0 && !dispatcher.messages.is_full()) {
        let parts: Parts = message.jobs.iter().map(|job| (job, small(dispatcher.parts(job).count()))).collect();
        let new = || parts.iter().filter(|(_, number)| *number == 0);
        if new().count() <= free {
            let after = steps.usual(("Intake::take", message.jobs.first()), "a message comes");
            after.jobs.remove(message);
            let Dispatcher { messages, slots } = &mut after.dispatchers[number];
            messages.add(Taken { message, is_usable: true, parts, follow_ups: Bag::EMPTY });
            for ((job, _), slot) in new().zip(slots.iter_mut().filter(|slot| slot.is_none())) {
                *slot = Some((job, Phase::Begun));
            }
        }
    }
}

/// The next step of a job that is under way.
fn step(steps: &mut Steps, number: usize, (job, phase): Slot) {
    let (config, dispatcher) = (steps.config, &steps.state.dispatchers[number]);
    let delivery_count = u32::from(dispatcher.was_redelivered(job) && !config.is(Broken::AgainForgetsDeliveries));
    let (end, note) = match phase {
        Phase::Begun => return judge(steps, number, job),
        Phase::Held(reason) => {
            let duplicates = small(dispatcher.parts(job).count() - 1);
            let phase = Phase::Holding(reason, duplicates, dispatcher.was_redelivered(job));
            let after = steps.usual(("holder::run", Some(job)), "its duplicates are counted");
            return after.dispatchers[number].set(job, phase);
        }
        Phase::Holding(reason, duplicates, redelivered) => {
            return hold(steps, number, job, (reason, duplicates, redelivered));
        }
        Phase::Made(made) => return record(steps, number, job, made),
        Phase::Attempt(progress) if dispatcher.parts(job).any(|(_, taken)| taken.is_usable) => {
            return attempt(steps, number, job, (progress, delivery_count));
        }
        Phase::Attempt(_) => (End::NotNeeded, "ends, as its message was lost"),
        Phase::Cancel => (End::Done, "the delivery is cancelled, and the job ends"),
        Phase::Skip(Verdict::Early(due)) => (End::Again(due, delivery_count), "ends, to be published again"),
        Phase::Skip(Verdict::PublishRetry(due)) => (End::Retry(due), "ends, its retry to be published"),
        Phase::Skip(_) => (End::NotNeeded, "ends"),
    };
    let name = if phase == Phase::Cancel { "Line::cancel" } else { "Settler::end_all" };
    let after = steps.usual((name, Some(job)), note);
    if phase == Phase::Cancel {
        let row = after.row(job.of());
        row.take(row.progress.cancelled());
    }
    after.dispatchers[number].end_all(job, end, config);
}

fn judge(steps: &mut Steps, number: usize, job: Job) {
    let (config, State { rows, webhook, dispatchers, .. }) = (steps.config, steps.state);
    let Some(Row { progress, .. }) = rows[job.of()] else { return };
    let is_redelivered = dispatchers[number].parts(job).any(|(number, taken)| number == 0 && taken.message.redelivered);
    let verdict = progress.judge(job.real(), Redelivered::from(is_redelivered), NOW, &config.schedule);
    let (phase, note) = match (verdict, webhook) {
        (Verdict::Attempt, WebhookState::Active) => (Phase::Attempt(progress), "to be attempted"),
        (Verdict::Attempt, WebhookState::Paused) => (Phase::Held(HoldReason::Paused), "the webhook is paused"),
        (Verdict::Attempt, WebhookState::Deleted) => (Phase::Cancel, "the webhook is deleted"),
        (Verdict::Stale, _) if config.is(Broken::StaleAttempted) => (Phase::Attempt(progress), "stale, and attempted"),
        (Verdict::Early(_), _) if config.is(Broken::EarlyAttempted) => {
            (Phase::Attempt(progress), "early, and attempted")
        }
        (Verdict::Stale, _) => (Phase::Skip(verdict), "stale"),
        (Verdict::Early(_), _) => (Phase::Skip(verdict), "early"),
        (Verdict::PublishRetry(_), _) => (Phase::Skip(verdict), "recorded, its retry may not have been published"),
    };
    steps.usual(("Line::judge", Some(job)), note).dispatchers[number].set(job, phase);
}

fn attempt(steps: &mut Steps, number: usize, job: Job, (progress, delivery_count): (Progress, u32)) {
    let (config, is_since) = (steps.config, steps.state.leader.is_rebuilding());
    let endless = "1m,2m,3m,4m,5m,6m,7m,8m".parse().ok().filter(|_| config.is(Broken::NothingIsDropped));
    let schedule = endless.as_ref().unwrap_or(&config.schedule);
    for (class, note) in [(OutcomeClass::Success, "POST: succeeds"), (OutcomeClass::Status, "POST: fails")] {
        let progress = progress.after_attempt(class, NOW, NOW, schedule);
        let after = steps.usual(("Sender::attempt", Some(job)), note);
        let row = after.row(job.of());
        let repeated = if job.attempt > row.posted { 0 } else { row.repeated + 1 };
        (row.posted, row.repeated) = (row.posted.max(job.attempt), repeated);
        after.dispatchers[number].set(job, Phase::Made(Made { progress, is_recorded: false, is_since }));
    }
    steps.may(May::Hold, ("Lanes::admit", Some(job)), "no slot, as the webhook is slow", |state| {
        state.dispatchers[number].set(job, Phase::Held(HoldReason::Slow));
    });
    steps.may(May::Lack, ("Line::postpone", Some(job)), "no descriptor: again in a minute", |state| {
        let row = state.row(job.of());
        row.take(row.progress.postponed(progress.attempts, at(1)));
        state.dispatchers[number].end_all(job, End::Again(at(1), delivery_count), config);
    });
}

fn hold(steps: &mut Steps, number: usize, job: Job, (reason, duplicates, redelivered): (HoldReason, u8, bool)) {
    let (config, webhook) = (steps.config, steps.state.webhook);
    let is_active = webhook == WebhookState::Active;
    if !(webhook.holds(reason) || is_active && config.is(Broken::HeldAfterActivation)) {
        let after = steps.usual(("Ledger::jobs_hold", Some(job)), "not held: to be judged again");
        return after.dispatchers[number].set(job, Phase::Begun);
    }
    let after = steps.usual(("Ledger::jobs_hold", Some(job)), "the job is held, and its messages end");
    after.wakes |= reason == HoldReason::Slow && is_active;
    let held = &mut after.row(job.of()).held;
    let keeps_first = held.is_some() && config.is(Broken::SecondHoldForgetsDeliveries);
    *held = Some(held.unwrap_or_default() || redelivered && !keeps_first);
    after.dispatchers[number].end(job, duplicates.into(), End::Done, config);
}

fn record(steps: &mut Steps, number: usize, job: Job, attempt: Made) {
    let (config, made) = (steps.config, attempt.progress);
    let Some(Row { progress: before, .. }) = steps.state.rows[job.of()] else { return };
    let recorded = before.recorded(&made).map(|new| match before.run_base == made.run_base {
        false if config.is(Broken::RecordOverwritesResend) => made,
        true if config.is(Broken::RecordOverwritesCancellation) => made,
        _ => new,
    });
    let record = recorded.map_or(before.found(made.attempts, attempt.is_recorded), |new| Record::taken(&new));
    let note = match record {
        Record::Taken { .. } if recorded.is_some() => "recorded, and ends",
        Record::Taken { .. } => "was recorded, and ends",
        _ => "was recorded by another one, and ends",
    };
    let redelivered = Redelivered::from(steps.state.dispatchers[number].was_redelivered(job));
    let retry = record.retry(job.real(), redelivered, NOW, &config.schedule);
    let end = retry.filter(|_| !config.is(Broken::RecordedWithoutFollowUp)).map_or(End::Done, End::Retry);
    let of = ("Ledger::attempts_record", Some(job));
    let Some(new) = recorded else { return steps.usual(of, note).dispatchers[number].end_all(job, end, config) };
    steps.call(of, [note, "recorded, and the commit's answer is lost"], |state, answer| {
        let row = state.row(job.of());
        row.take(Some(new));
        (row.is_published, row.earliest) = (row.is_published || attempt.is_since, row.wait());
        match answer {
            Answer::Comes => state.dispatchers[number].end_all(job, end, config),
            Answer::IsLost => state.dispatchers[number].set(job, Phase::Made(Made { is_recorded: true, ..attempt })),
        }
    });
}

fn publish_then_ack(steps: &mut Steps, number: usize, taken: Taken) {
    let config = steps.config;
    if taken.follow_ups == Bag::EMPTY {
        let after = steps.usual(("Acker::ack_all", taken.message.jobs.first()), "the message is acknowledged");
        return after.dispatchers[number].messages.remove(taken);
    }
    let publish = |state: &mut State| {
        taken.follow_ups.iter().for_each(|message| state.jobs.add(message.queued(&config.schedule)));
    };
    let of = ("Settler::publish_then_ack", first_job(&taken.follow_ups));
    let note = "the follow-up is published and confirmed, the message acknowledged";
    steps.call(of, [note, "published, and the confirm is lost: to be published again"], |state, answer| {
        publish(state);
        if answer == Answer::Comes {
            state.dispatchers[number].messages.remove(taken);
        }
    });
    steps.may(May::Fault, of, "published, and the connection is lost before the acknowledgement", |state| {
        publish(state);
        lose(state, number, config);
    });
}
