//! An outbox relay: its batch of jobs, of the outbox or of held ones, and cancellations.

use crate::{
    config::Broken,
    state::{DELIVERIES, Job, Lease, Message, NOW, State, Webhook},
    step::{Actor, Steps},
};

/// A job of a batch, and whether its message was handed out before it was held.
type Jobs = [Option<(Job, bool)>; DELIVERIES];

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Relay {
    #[default]
    Idle,
    Leased(Jobs),
    Published,
}

impl Relay {
    pub(crate) fn has(&self, delivery: usize) -> bool {
        matches!(self, Self::Leased(jobs) if jobs[delivery].is_some())
    }
}

pub(crate) fn steps(steps: &mut Steps, number: usize) {
    let (actor, state) = (Actor::Relay(number), steps.state);
    // Both are alike while they are idle.
    if state.relays[number] == Relay::Idle && (number == 0 || state.relays[0] != Relay::Idle) {
        lease(steps, number);
        wake(steps, number);
        if state.is_cancelling {
            let note = (None, "waiting deliveries are cancelled");
            steps.usual((actor, "Ledger::cancellation_step"), note, |state| {
                state.is_cancelling = false;
                for row in state.rows.iter_mut().flatten() {
                    if row.progress.take(row.progress.real().cancelled()) {
                        row.held = None;
                    }
                }
            });
        }
    }
    match state.relays[number] {
        Relay::Idle => return,
        Relay::Leased(jobs) => {
            let job = jobs.iter().flatten().next().map(|(job, _)| *job);
            let publish = |state: &mut State| {
                for (job, redelivered) in jobs.into_iter().flatten() {
                    state.jobs.add(Message { redelivered, ..Message::due(job) });
                }
            };
            steps.usual((actor, "Outbox::publish"), (job, "the jobs are published, and confirmed"), |state| {
                publish(state);
                state.relays[number] = Relay::Published;
            });
            steps.fault((actor, "Outbox::publish"), (job, "published, and the confirm is lost"), |state| {
                publish(state);
                leave(state, number);
            });
        }
        Relay::Published => {
            let is_old = steps.config.is(Broken::OutboxDeletedByOldLease);
            steps.usual((actor, "Ledger::outbox_delete"), (None, "what it has leased is deleted"), |state| {
                for row in state.rows.iter_mut().flatten() {
                    if row.outbox == Some(Lease::Of(name(number))) || is_old {
                        (row.outbox, row.carries) = (None, false);
                    }
                }
                state.relays[number] = Relay::Idle;
            });
        }
    }
    steps.fault((actor, ""), (None, "dies"), |state| leave(state, number));
    if state.rows.iter().flatten().any(|row| row.outbox == Some(Lease::Of(name(number)))) {
        steps.fault((actor, ""), (None, "is so slow that its lease ends"), |state| {
            of(state, number, Lease::Free);
        });
    }
}

fn name(number: usize) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

/// Changes the entries that a relay has leased.
fn of(state: &mut State, number: usize, lease: Lease) {
    for row in state.rows.iter_mut().flatten().filter(|row| row.outbox == Some(Lease::Of(name(number)))) {
        row.outbox = Some(lease);
    }
}

fn leave(state: &mut State, number: usize) {
    of(state, number, Lease::OfNobody);
    state.relays[number] = Relay::Idle;
}

fn lease(steps: &mut Steps, number: usize) {
    if !steps.state.rows.iter().flatten().any(|row| row.outbox == Some(Lease::Free)) {
        return;
    }
    let is_gone = steps.config.is(Broken::OutboxGoneBeforePublish);
    let commit = |state: &mut State| {
        let mut jobs = [None; DELIVERIES];
        for (delivery, row) in state.rows.iter_mut().enumerate() {
            let Some(row) = row.as_mut().filter(|row| row.outbox == Some(Lease::Free)) else { continue };
            row.outbox = (!is_gone).then_some(Lease::Of(name(number)));
            if row.progress.take(row.progress.real().due_now(NOW)) {
                jobs[delivery] = Some((row.next_job(delivery), row.carries));
            }
        }
        state.relays[number] = if jobs == [None; DELIVERIES] { Relay::Published } else { Relay::Leased(jobs) };
    };
    let note = (None, "entries are leased, and their deliveries due now");
    steps.usual((Actor::Relay(number), "Ledger::outbox_lease"), note, commit);
    let note = (None, "entries are leased, and the commit's answer is lost");
    steps.fault((Actor::Relay(number), "Ledger::outbox_lease"), note, |state| {
        commit(state);
        leave(state, number);
    });
}

fn wake(steps: &mut Steps, number: usize) {
    let actor = Actor::Relay(number);
    if !steps.state.wakes {
        return;
    }
    if steps.state.webhook != Webhook::Active {
        let note = (None, "the webhook is paused: its activation has its held jobs published");
        return steps.usual((actor, "Ledger::jobs_wake"), note, |state| state.wakes = false);
    }
    let keeps = !steps.config.is(Broken::OutboxForgetsDeliveries);
    let commit = |state: &mut State| {
        let mut jobs = [None; DELIVERIES];
        for (delivery, row) in state.rows.iter_mut().enumerate() {
            let Some(row) = row else { continue };
            let Some(redelivered) = row.held.take() else { continue };
            if row.progress.take(row.progress.real().due_now(NOW)) {
                jobs[delivery] = Some((row.next_job(delivery), redelivered));
                row.outbox = Some(Lease::Of(name(number)));
                row.carries |= redelivered && keeps;
            }
        }
        state.wakes = false;
        state.relays[number] = if jobs == [None; DELIVERIES] { Relay::Idle } else { Relay::Leased(jobs) };
    };
    steps.usual((actor, "Ledger::jobs_wake"), (None, "held jobs are added to the outbox, leased"), commit);
    steps.fault(
        (actor, "Ledger::jobs_wake"),
        (None, "added to the outbox, and the commit's answer is lost"),
        |state| {
            commit(state);
            leave(state, number);
        },
    );
}
