//! An ingest: batches of events. Each has a process and a connection of its own, which allows more than the real ones do.

use crate::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Batch {
    pub(crate) events: Messages,
    pub(crate) is_usable: bool,
    /// An earlier call, whose answer was lost, may have stored them.
    may_be_older: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Taken,
    /// Stored, with the jobs of its new deliveries. Others may wait for their first attempt since an earlier try.
    Stored(Bag<Job, DELIVERIES>),
    Publishing(Bag<Job, DELIVERIES>),
}

impl Batch {
    /// Puts another batch in its place, or none.
    fn replace(self, state: &mut State, new: Option<Self>) {
        state.ingests.remove(self);
        new.into_iter().for_each(|new| state.ingests.add(new));
    }

    /// The connection of its process ends.
    fn lose(self, state: &mut State, left: Option<Self>, config: &Config) {
        self.replace(state, left);
        if self.is_usable && !config.is(Broken::EventAcknowledgedBeforeCommit) {
            self.events.iter().for_each(|event| state.events.add(Message { redelivered: true, ..event }));
        }
    }
}

pub(crate) fn steps(steps: &mut Steps) {
    let (config, state) = (steps.config, steps.state);
    for event in state.events.iter().filter(|_| !state.ingests.is_full()) {
        take(steps, event, None);
        let others = state.events.iter().filter(|other| other.jobs.first() > event.jobs.first());
        others.for_each(|other| take(steps, event, Some(other)));
    }
    for batch in state.ingests.iter() {
        match batch.phase {
            Phase::Taken => store(steps, batch),
            Phase::Stored(new) => find_untried(steps, batch, new),
            Phase::Publishing(jobs) => publish(steps, batch, Message::of(jobs.iter())),
        }
        steps.may(May::Fault, ("", None), "dies: its events are redelivered", |state| batch.lose(state, None, config));
        if batch.is_usable && batch.phase != Phase::Publishing(Bag::EMPTY) {
            steps.may(May::Fault, ("", None), "loses its connection: its events are redelivered", |state| {
                batch.lose(state, Some(Batch { is_usable: false, ..batch }), config);
            });
        }
    }
}

fn take(steps: &mut Steps, event: Message, other: Option<Message>) {
    let note = if other.is_some() { "two events come" } else { "an event comes" };
    let after = steps.usual(("Intake::take", event.jobs.first()), note);
    let events: Messages = [event].into_iter().chain(other).collect();
    events.iter().for_each(|event| after.events.remove(event));
    after.ingests.add(Batch { events, is_usable: true, may_be_older: false, phase: Phase::Taken });
}

fn store(steps: &mut Steps, batch: Batch) {
    if !batch.is_usable {
        let after = steps.usual(("Acker::is_usable", None), "the events come again: nothing is stored");
        return batch.replace(after, None);
    }
    let notes = ["the events are stored", "stored, and the commit's answer is lost"];
    steps.call(("Ledger::events_store", None), notes, |state, answer| {
        let mut new = Bag::EMPTY;
        for delivery in batch.events.iter().filter_map(|event| event.jobs.first()).map(Job::of) {
            let stored = state.webhook.of_new_event().filter(|_| state.rows[delivery].is_none());
            let row = stored.map(|stored| Row::new(stored, state.leader.is_rebuilding()));
            state.rows[delivery] = state.rows[delivery].or(row);
            row.filter(Row::waits).into_iter().for_each(|row| new.add(row.next_job(delivery)));
        }
        let is_doubtful = batch.may_be_older || batch.events.iter().any(|event| event.redelivered);
        let phase = if is_doubtful { Phase::Stored(new) } else { Phase::Publishing(new) };
        let stored = match answer {
            Answer::Comes => Batch { phase, ..batch },
            Answer::IsLost => Batch { may_be_older: true, ..batch },
        };
        batch.replace(state, Some(stored));
    });
}

fn find_untried(steps: &mut Steps, batch: Batch, mut jobs: Bag<Job, DELIVERIES>) {
    let is_asked_for = !steps.config.is(Broken::UntriedNotAskedFor);
    for event in batch.events.iter().filter(|event| is_asked_for && (batch.may_be_older || event.redelivered)) {
        let delivery = event.jobs.first().map_or(0, Job::of);
        let untried = steps.state.rows[delivery].filter(|row| row.progress.is_untried());
        if let Some(job) = untried.map(|row| row.next_job(delivery)) {
            jobs.remove(job);
            jobs.add(job);
        }
    }
    let note = "untried deliveries of redelivered events get their jobs, too";
    let after = steps.usual(("Ledger::deliveries_untried", None), note);
    batch.replace(after, Some(Batch { phase: Phase::Publishing(jobs), ..batch }));
}

/// Two jobs share a message, as under high load.
fn publish(steps: &mut Steps, batch: Batch, message: Message) {
    let (of, config) = (("Intake::publish_then_ack", message.jobs.first()), steps.config);
    if message.jobs == Bag::EMPTY {
        return batch.replace(steps.usual(("Acker::ack_all", None), "the events are acknowledged"), None);
    }
    let note = "the jobs are published and confirmed, the events acknowledged";
    steps.call(of, [note, "published, and the confirm is lost: to be published again"], |state, answer| {
        state.jobs.add(message);
        batch.replace(state, Some(batch).filter(|_| answer == Answer::IsLost));
    });
    steps.may(May::Fault, of, "published, and it dies before the acknowledgement", |state| {
        state.jobs.add(message);
        batch.lose(state, None, config);
    });
}
