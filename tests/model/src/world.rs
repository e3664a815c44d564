//! What is no process of the service: the broker's disk, time, publishers and administrators.

use crate::{dispatcher, dispatcher::Dispatcher, leader::Leader, prelude::*, relay::release};

fn event(delivery: u8) -> Message {
    Message::of([Job { delivery, attempt: 0 }])
}

/// All events are accepted, and on their queue.
pub(crate) fn start(config: &Config) -> State {
    State {
        events: (0..config.events).map(event).collect(),
        jobs: Bag::EMPTY,
        rows: [None; DELIVERIES],
        webhook: WebhookState::Active,
        wakes: false,
        is_cancelling: false,
        ingests: Bag::EMPTY,
        dispatchers: [Dispatcher::IDLE; 2],
        relays: [None; 2],
        leader: Leader::NEW,
        budget: config.budget,
        was_under_way: [false; DELIVERIES],
    }
}

pub(crate) fn steps(steps: &mut Steps) {
    let config = steps.config;
    time(steps.by("time"));
    let lost = "loses its disk: queues and connections are gone, accepted events with them";
    steps.by("broker").may(May::Disk, ("", None), lost, |state| lose_disk(state, config));
    for event in (0..config.events).map(event) {
        let copy = |state: &mut State| state.events.add(event);
        steps.by("publisher").may(May::Copy, ("", event.jobs.first()), "publishes the event once more", copy);
    }
    if steps.state.webhook != WebhookState::Deleted {
        administrators(steps.by("administrator"));
    }
}

fn administrators(steps: &mut Steps) {
    let (config, webhook) = (steps.config, steps.state.webhook);
    let changes = [
        (May::Pause, WebhookState::Paused, "Ledger::webhook_change", "the webhook is paused"),
        (May::Activate, WebhookState::Active, "Ledger::webhook_change", "the webhook is activated"),
        (May::Delete, WebhookState::Deleted, "Ledger::webhook_delete", "the webhook is deleted"),
    ];
    for (may, to, name, note) in changes.into_iter().filter(|(_, to, ..)| *to != webhook) {
        steps.may(may, (name, None), note, |state| {
            state.webhook = to;
            state.budget[May::Activate as usize] += u8::from(to == WebhookState::Paused);
            state.wakes |= to == WebhookState::Active && !config.is(Broken::ActivationWithoutWake);
            state.is_cancelling = to == WebhookState::Deleted && !config.is(Broken::DeletionWithoutCancellation);
        });
    }
    for (delivery, row) in steps.state.stored() {
        let Some(resent) = row.progress.resent(NOW) else { continue };
        let of = ("Ledger::delivery_resend", Some(Job { attempt: 0, ..row.next_job(delivery) }));
        steps.may(May::Resend, of, "is resent", |state| {
            let outbox = if config.is(Broken::ResendWithoutJob) { row.outbox } else { Some(Lease::Free) };
            state.rows[delivery] = Some(Row { progress: resent, earliest: 0, base: resent.attempts, outbox, ..row });
        });
    }
}

fn time(steps: &mut Steps) {
    let state = steps.state;
    let tick = |state: &mut State| {
        state.jobs.each(|message| message.wait = later(message.wait));
        for (_, row) in state.stored_mut() {
            tick(&mut row.progress);
            row.earliest = later(row.earliest);
        }
        state.dispatchers.iter_mut().for_each(Dispatcher::tick);
        state.leader.tick();
    };
    let is_busy = (0..DELIVERIES).any(|delivery| state.is_at_work(delivery)) || state.relays != [None; 2];
    let is_waited_for = state.jobs.iter().any(|message| message.wait > 0)
        || state.stored().any(|(_, row)| row.waits() && row.wait() > 0);
    if is_waited_for && is_busy {
        steps.may(May::Fault, ("", None), "a minute passes, while processes are at work", tick);
    } else if is_waited_for {
        tick(steps.usual(("", None), "a minute passes"));
    }
    if state.stored().any(|(_, row)| row.outbox == Some(Lease::OfNobody)) {
        release(steps.usual(("", None), "a lease in the outbox ends"), Lease::OfNobody, Lease::Free);
    }
}

fn lose_disk(state: &mut State, config: &Config) {
    for delivery in 0..DELIVERIES {
        state.was_under_way[delivery] = state.is_at_work(delivery);
    }
    for number in 0..2 {
        state.jobs = Bag::EMPTY;
        dispatcher::lose(state, number, config);
    }
    (state.events, state.jobs) = (Bag::EMPTY, Bag::EMPTY);
    state.ingests.each(|batch| batch.is_usable = false);
    state.leader = Leader::LOST;
}
