//! What has to hold.

use crate::{leader::is_lost, prelude::*};

/// The violated property, in words.
type Violated = Option<&'static str>;

/// Returns the property that a step violates. Accepted events may be lost with the broker's disk, and nobody wants those of a
/// deleted webhook.
pub(crate) fn violated(config: &Config, before: &State, next: &(Step, State)) -> Violated {
    let after = &next.1;
    let mut violated = after.stored().filter_map(|row| of_row(config, before, next, row));
    let is_wanted =
        after.budget[May::Disk as usize] == config.budget[May::Disk as usize] && after.webhook != WebhookState::Deleted;
    let is_lost = |delivery: usize| after.rows[delivery].is_none() && !after.is_somewhere(delivery);
    let is_event_lost = is_wanted && (0..config.events.into()).any(is_lost);
    violated.next().or(is_event_lost.then_some("an accepted event is lost"))
}

fn of_row(config: &Config, before: &State, (step, after): &(Step, State), (delivery, row): (usize, Row)) -> Violated {
    let spent = |may: May| config.budget[may as usize].saturating_sub(after.budget[may as usize]);
    let whole = u16::try_from(config.schedule.steps().len() + 1).unwrap_or(u16::MAX);
    let Progress { state, attempts, run_base, .. } = row.progress;
    // What was under way when the broker lost its disk is left to lost-job detection.
    let is_left = after.was_under_way[delivery] && !config.is_strict;
    let is_rebuilding = !after.leader.is_quiet(config);
    let succeeds = |old: Row| (old.progress.state, state) == (DeliveryState::Cancelled, DeliveryState::Succeeded);
    let (is_early, is_anew) = before.rows[delivery].map_or((false, false), |old| {
        let is_posted = (old.posted, old.repeated) != (row.posted, row.repeated);
        let is_next = is_posted && step.of.1 == Some(old.next_job(delivery)) && old.waits();
        let is_by_itself = step.may.is_none_or(|may| may == May::Fault);
        (is_next && old.earliest > 0, is_by_itself && !old.waits() && state != old.progress.state && !succeeds(old))
    });
    let is_dropped_early = state == DeliveryState::Dropped && attempts - row.base < whole;
    // A job of a resend has the number of an attempt that may be under way.
    let is_repeated = row.repeated > 2 * (spent(May::Fault) + spent(May::Disk)) + spent(May::Resend);
    let of = [
        (attempts - run_base > whole, "more attempts are made than the schedule has"),
        (is_dropped_early, "a delivery is dropped before its schedule has ended"),
        (is_repeated, "more POSTs are repeated than two for each fault"),
        (is_early, "an attempt is made before it is due"),
        (is_anew, "what has ended begins anew"),
        (!is_left && !is_rebuilding && is_lost(after, delivery, config), "lost-job detection has something to do"),
    ];
    of.into_iter().find_map(|(is_violated, property)| is_violated.then_some(property))
}

/// Returns the property that a state violates in which nothing happens any more by itself. What is left to lost-job
/// detection after a lost disk waits for the webhook's activation, too.
pub(crate) fn violated_at_rest(state: &State) -> Violated {
    let is_paused = state.webhook == WebhookState::Paused;
    let is_kept = |delivery: usize, row: &Row| is_paused && (row.held.is_some() || state.was_under_way[delivery]);
    let is_stuck = state.stored().any(|(delivery, row)| row.waits() && !is_kept(delivery, &row));
    is_stuck.then_some("a run rests and a delivery still waits")
}
