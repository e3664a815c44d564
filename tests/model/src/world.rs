//! What is no process of the service: the broker's disk, time, publishers and administrators.

use crate::{
    config::{Broken, Config},
    dispatcher::Dispatcher,
    leader::Leader,
    relay::Relay,
    state::{DELIVERIES, Event, Job, Lease, NOW, State, Webhook, later},
    step::{Actor, Steps},
};

/// All events are accepted, and on their queue.
pub(crate) fn start(config: &Config) -> State {
    let mut state = State {
        events: Default::default(),
        jobs: Default::default(),
        rows: [None; DELIVERIES],
        webhook: Webhook::Active,
        wakes: false,
        is_cancelling: false,
        ingests: Default::default(),
        dispatchers: Default::default(),
        relays: [Relay::Idle; 2],
        leader: Leader::NEW,
        budget: config.budget,
        accepted: [false; DELIVERIES],
        was_under_way: [false; DELIVERIES],
    };
    for delivery in 0..config.events {
        state.events.add(Event { delivery, redelivered: false });
        state.accepted[usize::from(delivery)] = true;
    }
    state
}

pub(crate) fn steps(steps: &mut Steps) {
    time(steps);
    let lost = (None, "loses its disk: queues and connections are gone, accepted events with them");
    steps.wish(|budget| &mut budget.disks, (Actor::Broker, ""), lost, lose_disk);
    for delivery in 0..steps.config.events {
        let copy = (Some(Job { delivery, attempt: 0 }), "publishes the event once more");
        steps.wish(
            |budget| &mut budget.copies,
            (Actor::Publisher, ""),
            copy,
            |state| {
                state.events.add(Event { delivery, redelivered: false });
            },
        );
    }
    administrators(steps);
}

fn administrators(steps: &mut Steps) {
    let config = steps.config;
    let change = (Actor::Administrator, "Ledger::webhook_change");
    match steps.state.webhook {
        Webhook::Active => steps.wish(
            |budget| &mut budget.pauses,
            change,
            (None, "the webhook is paused"),
            |state| {
                (state.webhook, state.budget.activations) = (Webhook::Paused, state.budget.activations + 1);
            },
        ),
        Webhook::Paused => {
            steps.wish(
                |budget| &mut budget.activations,
                change,
                (None, "the webhook is activated"),
                |state| {
                    state.webhook = Webhook::Active;
                    state.wakes |= !config.is(Broken::ActivationWithoutWake);
                },
            );
        }
        Webhook::Deleted => return,
    }
    let delete = (Actor::Administrator, "Ledger::webhook_delete");
    steps.wish(
        |budget| &mut budget.deletions,
        delete,
        (None, "the webhook is deleted"),
        |state| {
            state.webhook = Webhook::Deleted;
            state.is_cancelling = !config.is(Broken::DeletionWithoutCancellation);
        },
    );
    for (delivery, row) in steps.state.stored() {
        let Some(resent) = row.progress.real().resent(NOW) else { continue };
        let said = (Some(Job { attempt: 0, ..row.next_job(delivery) }), "is resent");
        let by = (Actor::Administrator, "Ledger::delivery_resend");
        steps.wish(
            |budget| &mut budget.resends,
            by,
            said,
            |state| {
                let row = state.row(delivery);
                row.progress = resent.into();
                (row.earliest, row.base) = (0, row.progress.attempts);
                if !config.is(Broken::ResendWithoutJob) {
                    row.outbox = Some(Lease::Free);
                }
            },
        );
    }
}

fn time(steps: &mut Steps) {
    let state = steps.state;
    let is_waited_for = state.jobs.iter().any(|message| message.wait > 0)
        || state.rows.iter().flatten().any(|row| row.waits() && !row.is_due());
    if is_waited_for {
        let tick = |state: &mut State| {
            state.jobs.each(|message| message.wait = later(message.wait));
            for row in state.rows.iter_mut().flatten() {
                row.progress.tick();
                row.earliest = later(row.earliest);
            }
            state.dispatchers.iter_mut().for_each(Dispatcher::tick);
            state.leader.tick();
        };
        let is_busy = state.dispatchers.iter().any(Dispatcher::is_busy) || state.ingests.iter().next().is_some();
        if is_busy || state.relays != [Relay::Idle; 2] {
            steps.fault((Actor::Time, ""), (None, "a minute passes, while processes are at work"), tick);
        } else {
            steps.usual((Actor::Time, ""), (None, "a minute passes"), tick);
        }
    }
    if state.rows.iter().flatten().any(|row| row.outbox == Some(Lease::OfNobody)) {
        steps.usual((Actor::Time, ""), (None, "a lease in the outbox ends"), |state| {
            for row in state.rows.iter_mut().flatten().filter(|row| row.outbox == Some(Lease::OfNobody)) {
                row.outbox = Some(Lease::Free);
            }
        });
    }
}

fn lose_disk(state: &mut State) {
    for delivery in 0..DELIVERIES {
        state.was_under_way[delivery] = state.ingests.iter().any(|batch| batch.has(delivery))
            || state.dispatchers.iter().any(|one| one.is_at(delivery))
            || state.rows[delivery].is_some_and(|row| row.outbox.is_some());
    }
    state.events = Default::default();
    state.jobs = Default::default();
    for dispatcher in &mut state.dispatchers {
        _ = dispatcher.lose(None);
    }
    state.ingests.each(|batch| batch.is_usable = false);
    state.leader = Leader::LOST;
    for (accepted, row) in state.accepted.iter_mut().zip(&state.rows) {
        *accepted &= row.is_some();
    }
}
