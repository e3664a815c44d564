//! An ingest: batches of events. Each has a process and a connection of its own, which allows more than the real ones do.

use domain::DeliveryState;

use crate::{
    config::Broken,
    state::{DELIVERIES, Event, Job, Message, Row, State, Webhook},
    step::{Actor, Steps},
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Batch {
    pub(crate) events: [Option<Event>; DELIVERIES],
    pub(crate) is_usable: bool,
    /// An earlier call, whose answer was lost, may have stored them.
    may_be_older: bool,
    phase: Phase,
}

/// Deliveries of the batch.
type Which = [bool; DELIVERIES];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Taken,
    /// Stored, with its new deliveries. Others may wait for their first attempt since an earlier try.
    Stored(Which),
    Publishing(Which),
    Done,
}

impl Batch {
    pub(crate) fn has(&self, delivery: usize) -> bool {
        self.events.iter().flatten().any(|event| usize::from(event.delivery) == delivery)
    }

    /// Returns whether its events come again with its connection's end.
    fn comes_again(&self, broken: Option<Broken>) -> bool {
        self.is_usable && broken != Some(Broken::EventAcknowledgedBeforeCommit)
    }

    pub(crate) fn give_back(&self, state: &mut State, broken: Option<Broken>) {
        if self.comes_again(broken) {
            for event in self.events.iter().flatten() {
                state.events.add(Event { redelivered: true, ..*event });
            }
        }
    }
}

fn replace(state: &mut State, old: Batch, new: Option<Batch>) {
    state.ingests.remove(old);
    if let Some(new) = new {
        state.ingests.add(new);
    }
}

pub(crate) fn steps(steps: &mut Steps) {
    take(steps);
    let broken = steps.config.broken;
    for batch in steps.state.ingests.distinct() {
        match batch.phase {
            Phase::Taken => store(steps, batch),
            Phase::Stored(new) => find_untried(steps, batch, new),
            Phase::Publishing(jobs) => publish(steps, batch, jobs),
            Phase::Done => {
                let note = (None, "the events are acknowledged");
                steps.usual((Actor::Ingest, "Acker::ack_all"), note, |state| replace(state, batch, None));
            }
        }
        steps.fault((Actor::Ingest, ""), (None, "dies: its events are redelivered"), |state| {
            replace(state, batch, None);
            batch.give_back(state, broken);
        });
        if batch.is_usable && batch.phase != Phase::Done {
            let note = "loses its connection: its events are redelivered";
            steps.fault((Actor::Ingest, ""), (None, note), |state| {
                replace(state, batch, Some(Batch { is_usable: false, ..batch }));
                batch.give_back(state, broken);
            });
        }
    }
}

fn take(steps: &mut Steps) {
    if steps.state.ingests.is_full() {
        return;
    }
    let begin = |state: &mut State, events: [Option<Event>; DELIVERIES]| {
        events.iter().flatten().for_each(|event| state.events.remove(*event));
        state.ingests.add(Batch { events, is_usable: true, may_be_older: false, phase: Phase::Taken });
    };
    let ready: Vec<Event> = steps.state.events.distinct().collect();
    for (place, event) in ready.iter().copied().enumerate() {
        let of = Some(Job { delivery: event.delivery, attempt: 0 });
        steps.usual((Actor::Ingest, "Intake::take"), (of, "an event comes"), |state| begin(state, [Some(event), None]));
        for other in ready[place..].iter().copied().filter(|other| other.delivery > event.delivery) {
            steps.usual((Actor::Ingest, "Intake::take"), (None, "two events come"), |state| {
                begin(state, [Some(event), Some(other)]);
            });
        }
    }
}

fn store(steps: &mut Steps, batch: Batch) {
    if !batch.is_usable {
        let note = (None, "the events come again: nothing is stored");
        return steps.usual((Actor::Ingest, "Acker::is_usable"), note, |state| replace(state, batch, None));
    }
    let commit = |state: &mut State| {
        let mut new = [false; DELIVERIES];
        for event in batch.events.iter().flatten() {
            let (delivery, since) = (usize::from(event.delivery), state.leader.is_rebuilding());
            let stored = match state.webhook {
                Webhook::Active => DeliveryState::Pending,
                Webhook::Paused => DeliveryState::Skipped,
                Webhook::Deleted => {
                    state.accepted[delivery] = false;
                    continue;
                }
            };
            if state.rows[delivery].is_none() {
                state.rows[delivery] = Some(Row::new(stored, since));
                new[delivery] = stored == DeliveryState::Pending;
            }
        }
        new
    };
    steps.usual((Actor::Ingest, "Ledger::events_store"), (None, "the events are stored"), |state| {
        let new = commit(state);
        let is_doubtful = batch.may_be_older || batch.events.iter().flatten().any(|event| event.redelivered);
        let phase = if is_doubtful { Phase::Stored(new) } else { publishing(new) };
        replace(state, batch, Some(Batch { phase, ..batch }));
    });
    steps.fault((Actor::Ingest, "Ledger::events_store"), (None, "stored, and the commit's answer is lost"), |state| {
        commit(state);
        replace(state, batch, Some(Batch { may_be_older: true, ..batch }));
    });
}

fn publishing(jobs: Which) -> Phase {
    if jobs.contains(&true) { Phase::Publishing(jobs) } else { Phase::Done }
}

fn find_untried(steps: &mut Steps, batch: Batch, mut jobs: Which) {
    for event in batch.events.iter().flatten().filter(|event| batch.may_be_older || event.redelivered) {
        let delivery = usize::from(event.delivery);
        let row = steps.state.rows[delivery].map(|row| row.progress);
        let is_untried = row.is_some_and(|row| row.state == DeliveryState::Pending && row.attempts == 0);
        jobs[delivery] |= is_untried && !steps.config.is(Broken::UntriedNotAskedFor);
    }
    let note = (None, "untried deliveries of redelivered events get their jobs, too");
    steps.usual((Actor::Ingest, "Ledger::deliveries_untried"), note, |state| {
        replace(state, batch, Some(Batch { phase: publishing(jobs), ..batch }));
    });
}

/// Two jobs share a message, as under high load.
fn publish(steps: &mut Steps, batch: Batch, jobs: Which) {
    let job = |delivery: u8| jobs[usize::from(delivery)].then_some(Job { delivery, attempt: 1 });
    let publish = |state: &mut State| {
        let (first, second) = (job(0), job(1));
        let jobs = if first.is_some() { [first, second] } else { [second, None] };
        state.jobs.add(Message { jobs, redelivered: false, wait: 0 });
    };
    let (first, broken) = (job(0).or(job(1)), steps.config.broken);
    let note = "the jobs are published and confirmed, the events acknowledged";
    steps.usual((Actor::Ingest, "Intake::publish_then_ack"), (first, note), |state| {
        publish(state);
        replace(state, batch, None);
    });
    let note = "published, and the confirm is lost: to be published again";
    steps.fault((Actor::Ingest, "Intake::publish_then_ack"), (first, note), publish);
    let note = "published, and it dies before the acknowledgement";
    steps.fault((Actor::Ingest, "Intake::publish_then_ack"), (first, note), |state| {
        publish(state);
        replace(state, batch, None);
        batch.give_back(state, broken);
    });
}
