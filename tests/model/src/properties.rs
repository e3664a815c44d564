//! What has to hold.

use domain::DeliveryState;

use crate::{
    config::Config,
    leader::is_lost,
    state::{Progress, Row, State, Webhook},
    step::{Kind, Step},
};

const EVENT_LOST: &str = "an accepted event is lost";
const JOB_LOST: &str = "lost-job detection has something to do";
const TOO_EARLY: &str = "an attempt is made before it is due";
const TOO_OFTEN: &str = "more attempts are made than the schedule has";
const TOO_SELDOM: &str = "a delivery is dropped before its schedule has ended";
const REPEATED: &str = "more POSTs are repeated than two for each fault";
const ENDED: &str = "what has ended begins anew";
const STUCK: &str = "a run rests and a delivery still waits";

/// Returns the property that a step violates.
pub(crate) fn violated(config: &Config, before: &State, step: &Step, after: &State) -> Option<&'static str> {
    let spent = config.budget.faults - after.budget.faults + config.budget.disks - after.budget.disks;
    let whole = u8::try_from(config.schedule.steps().len() + 1).unwrap_or(u8::MAX);
    let resent = config.budget.resends - after.budget.resends;
    for (delivery, row) in after.stored() {
        let old = before.rows[delivery];
        let Progress { state, attempts, run_base, .. } = row.progress;
        if attempts - run_base > whole {
            return Some(TOO_OFTEN);
        }
        if state == DeliveryState::Dropped && attempts - row.base < whole {
            return Some(TOO_SELDOM);
        }
        // A job of a resend has the number of an attempt that may be under way.
        if row.repeated > 2 * spent + resent {
            return Some(REPEATED);
        }
        if let Some(old) = old {
            let is_posted = (old.posted, old.repeated) != (row.posted, row.repeated);
            if is_posted && step.job == Some(old.next_job(delivery)) && old.waits() && old.earliest > 0 {
                return Some(TOO_EARLY);
            }
            if step.kind != Kind::Wish && begins_anew(&old, &row) {
                return Some(ENDED);
            }
        }
        let has_lost_disk = config.budget.disks > after.budget.disks;
        // What was under way when the broker lost its disk is left to it.
        let is_left = has_lost_disk && after.was_under_way[delivery] && !config.is_strict;
        let is_rebuilding = !after.leader.is_quiet(config);
        if !is_left && !is_rebuilding && is_lost(after, delivery, config.broken) {
            return Some(JOB_LOST);
        }
    }
    let is_somewhere = |delivery: usize| {
        after.rows[delivery].is_some()
            || after.events.iter().any(|event| usize::from(event.delivery) == delivery)
            || after.ingests.iter().any(|batch| batch.has(delivery))
    };
    let mut accepted = after.accepted.iter().enumerate().filter(|(_, is_accepted)| **is_accepted);
    accepted.any(|(delivery, _)| !is_somewhere(delivery)).then_some(EVENT_LOST)
}

fn begins_anew(old: &Row, new: &Row) -> bool {
    let (from, to) = (old.progress.state, new.progress.state);
    let succeeds = from == DeliveryState::Cancelled && to == DeliveryState::Succeeded;
    !from.is_waiting() && from != to && !succeeds
}

/// Returns the property that a state violates in which nothing happens any more by itself. What is left to lost-job
/// detection after a lost disk waits for the webhook's activation, too.
pub(crate) fn violated_at_rest(state: &State) -> Option<&'static str> {
    let is_kept = |delivery: usize, row: &Row| {
        state.webhook == Webhook::Paused && (row.held.is_some() || state.was_under_way[delivery])
    };
    state.stored().any(|(delivery, row)| row.waits() && !is_kept(delivery, &row)).then_some(STUCK)
}
