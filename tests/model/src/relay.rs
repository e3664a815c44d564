//! An outbox relay: its batch of jobs, of the outbox or of held ones, and cancellations.

use crate::prelude::*;

pub(crate) fn steps(steps: &mut Steps, number: usize) {
    let (state, ours) = (steps.state, Some(Lease::Of(small(number))));
    match state.relays[number] {
        // Both are alike while they are idle.
        None if number == 0 || state.relays[0].is_some() => begin(steps, number),
        None => {}
        Some(batch) if batch == Bag::EMPTY => {
            let is_old = steps.config.is(Broken::OutboxDeletedByOldLease);
            let after = steps.usual(("Ledger::outbox_delete", None), "what it has leased is deleted");
            for (_, row) in after.stored_mut().filter(|(_, row)| row.outbox == ours || is_old) {
                (row.outbox, row.carries) = (None, false);
            }
            after.relays[number] = None;
        }
        Some(batch) => {
            let notes = ["the jobs are published, and confirmed", "published, and the confirm is lost"];
            steps.call(("Outbox::publish", first_job(&batch)), notes, |state, answer| {
                batch.iter().for_each(|message| state.jobs.add(message));
                state.relays[number] = Some(Bag::EMPTY);
                leave(state, number, answer);
            });
        }
    }
    if state.relays[number].is_some() {
        steps.may(May::Fault, ("", None), "dies", |state| leave(state, number, Answer::IsLost));
    }
    if state.stored().any(|(_, row)| row.outbox == ours) {
        let late = "is so slow that its lease ends";
        steps.may(May::Fault, ("", None), late, |state| release(state, Lease::Of(small(number)), Lease::Free));
    }
}

/// Changes the leases of entries.
pub(crate) fn release(state: &mut State, from: Lease, to: Lease) {
    for (_, row) in state.stored_mut().filter(|(_, row)| row.outbox == Some(from)) {
        row.outbox = Some(to);
    }
}

/// Leaves its batch if it gets no answer.
fn leave(state: &mut State, number: usize, answer: Answer) {
    if answer == Answer::IsLost {
        release(state, Lease::Of(small(number)), Lease::OfNobody);
        state.relays[number] = None;
    }
}

/// An idle relay leases a batch of the outbox, or of held jobs, or cancels what waits.
fn begin(steps: &mut Steps, number: usize) {
    let (config, state, ours) = (steps.config, steps.state, Some(Lease::Of(small(number))));
    if state.stored().any(|(_, row)| row.outbox == Some(Lease::Free)) {
        let leased = ours.filter(|_| !config.is(Broken::OutboxGoneBeforePublish));
        let notes = ["entries are leased, and due now", "entries are leased, and the commit's answer is lost"];
        steps.call(("Ledger::outbox_lease", None), notes, |state, answer| {
            take(state, number, |row| {
                let entry = row.outbox.filter(|lease| *lease == Lease::Free);
                row.outbox = entry.map_or(row.outbox, |_| leased);
                entry.map(|_| row.carries)
            });
            leave(state, number, answer);
        });
    }
    if state.wakes && state.webhook != WebhookState::Active {
        let note = "the webhook is paused: its activation has its held jobs published";
        steps.usual(("Ledger::jobs_release", None), note).wakes = false;
    } else if state.wakes {
        let notes = ["held jobs are added to the outbox, leased", "added, and the commit's answer is lost"];
        steps.call(("Ledger::jobs_release", None), notes, |state, answer| {
            take(state, number, |row| {
                let held = row.held.take();
                if held.is_some() && row.waits() {
                    row.outbox = ours;
                    row.carries |= held == Some(true) && !config.is(Broken::OutboxForgetsDeliveries);
                }
                held.map(|redelivered| redelivered || row.carries)
            });
            state.wakes = false;
            leave(state, number, answer);
        });
    }
    if state.is_cancelling {
        let after = steps.usual(("Ledger::cancellation_step", None), "waiting deliveries are cancelled");
        after.is_cancelling = false;
        for (_, row) in after.stored_mut() {
            let is_cancelled = row.take(row.progress.cancelled());
            row.held = row.held.filter(|_| !is_cancelled);
        }
    }
}

/// Takes a batch of the rows of which `lease` says whether their messages were delivered before. Those that wait are due now.
fn take(state: &mut State, number: usize, lease: impl Fn(&mut Row) -> Option<bool>) {
    let mut batch = Bag::EMPTY;
    for (delivery, row) in state.stored_mut() {
        let Some(redelivered) = lease(row) else { continue };
        if row.take(row.progress.due_now(NOW)) {
            batch.add(Message { redelivered, ..Message::of([row.next_job(delivery)]) });
        }
    }
    state.relays[number] = Some(batch);
}
