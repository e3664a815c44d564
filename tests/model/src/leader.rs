//! The leader: the rebuild after a lost disk, and lost-job detection.

use crate::{
    config::{Broken, Config},
    state::{DELIVERIES, Job, Message, Row, State, Webhook, later},
    step::{Actor, Steps},
};

/// Jobs that are to be published, and when they are due.
type Found = [Option<(Job, i8)>; DELIVERIES];

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    sentinel: Sentinel,
    found: Option<Found>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sentinel {
    Kept,
    Gone,
    /// A rebuild publishes the deliveries with a due time, then the untried ones.
    Due,
    Untried,
    Rebuilt,
}

impl Leader {
    pub(crate) const NEW: Self = Self { sentinel: Sentinel::Kept, found: None };
    pub(crate) const LOST: Self = Self { sentinel: Sentinel::Gone, found: None };

    /// There is no rebuild to come.
    pub(crate) fn is_quiet(&self, config: &Config) -> bool {
        self.sentinel == Sentinel::Kept || config.is(Broken::NoRebuild)
    }

    /// The sentinel of a rebuild under way is declared.
    pub(crate) fn is_rebuilding(&self) -> bool {
        matches!(self.sentinel, Sentinel::Due | Sentinel::Untried | Sentinel::Rebuilt)
    }

    pub(crate) fn tick(&mut self) {
        self.found.iter_mut().flatten().flatten().for_each(|(_, due)| *due = later(*due));
    }
}

/// Returns whether a row is overdue for lost-job detection (`find_overdue.sql`), and its job is nowhere.
pub(crate) fn is_lost(state: &State, delivery: usize, broken: Option<Broken>) -> bool {
    let Some(row) = state.rows[delivery] else { return false };
    let mut places = row.places();
    places.is_promised &= broken != Some(Broken::DetectionIgnoresOutbox);
    places.is_held &= broken != Some(Broken::DetectionIgnoresHeld);
    state.webhook == Webhook::Active
        && row.is_due()
        && row.progress.real().needs_message(places)
        && !state.jobs.iter().any(|message| message.has(delivery))
        && !state.events.iter().any(|event| usize::from(event.delivery) == delivery)
        && !state.ingests.iter().any(|batch| batch.has(delivery))
        && !state.dispatchers.iter().any(|dispatcher| dispatcher.has(delivery))
        && (broken == Some(Broken::DetectionIgnoresOutbox) || !state.relays.iter().any(|relay| relay.has(delivery)))
        && state.leader.found.is_none_or(|found| found[delivery].is_none())
}

pub(crate) fn steps(steps: &mut Steps) {
    let (config, state) = (steps.config, steps.state);
    match (state.leader.sentinel, state.leader.found) {
        (Sentinel::Kept, _) => requeue(steps),
        (Sentinel::Gone, _) if config.is(Broken::NoRebuild) => requeue(steps),
        (Sentinel::Gone, _) => {
            let note = (None, "the sentinel is lost: a new one is declared");
            steps.usual((Actor::Leader, "Reconciler::begin"), note, |state| {
                state.leader.sentinel = Sentinel::Due;
                forget_since(state);
            });
        }
        (Sentinel::Rebuilt, _) => {
            let note = (None, "the rebuild has ended");
            steps.usual((Actor::Leader, "Leader::rebuild_finish"), note, |state| {
                state.leader.sentinel = Sentinel::Kept;
                forget_since(state);
            });
        }
        (sentinel, None) => {
            let found = find(state, sentinel, config);
            if found == [None; DELIVERIES] || (sentinel == Sentinel::Untried && config.is(Broken::RebuildMissesUntried))
            {
                let note = (None, "nothing is left to publish");
                return steps.usual((Actor::Leader, "Leader::waiting_find"), note, reach);
            }
            let job = found.iter().flatten().next().map(|(job, _)| *job);
            steps.usual((Actor::Leader, "Leader::waiting_find"), (job, "found to wait"), |state| {
                state.leader.found = Some(found);
            });
        }
        (_, Some(found)) => enqueue(steps, found),
    }
}

/// A rebuild begins or ends: what was made and attempted before it does not count.
fn forget_since(state: &mut State) {
    for row in state.rows.iter_mut().flatten() {
        (row.made_since, row.tried_since) = (false, false);
    }
}

/// As `find_waiting.sql`.
fn find(state: &State, sentinel: Sentinel, config: &Config) -> Found {
    let is_in_stream = |row: &Row| (sentinel == Sentinel::Due) == row.progress.due.is_some();
    let mut found = [None; DELIVERIES];
    for (delivery, row) in state.stored() {
        let mut places = row.places();
        places.is_promised &= !config.is(Broken::RebuildIgnoresOutbox);
        let may_come = row.made_since || (row.progress.attempts > 0 && row.tried_since);
        if state.webhook != Webhook::Deleted
            && row.progress.real().needs_message(places)
            && is_in_stream(&row)
            && (!may_come || config.is(Broken::RebuildRepeats))
        {
            found[delivery] = Some((row.next_job(delivery), row.progress.due.unwrap_or_default()));
        }
    }
    found
}

/// The cursor moves past the chunk.
fn reach(state: &mut State) {
    state.leader.found = None;
    state.leader.sentinel = if state.leader.sentinel == Sentinel::Due { Sentinel::Untried } else { Sentinel::Rebuilt };
}

fn enqueue(steps: &mut Steps, found: Found) {
    let schedule = &steps.config.schedule;
    let publish = |state: &mut State| {
        for (job, due) in found.into_iter().flatten() {
            if state.webhook == Webhook::Paused {
                let held = &mut state.row(job.of()).held;
                *held = held.or(Some(false));
            } else {
                state.jobs.add(Message::at(job, due, schedule));
            }
        }
    };
    let job = found.iter().flatten().next().map(|(job, _)| *job);
    steps.usual((Actor::Leader, "Reconciler::enqueue"), (job, "published, and confirmed"), |state| {
        publish(state);
        reach(state);
    });
    if steps.state.webhook != Webhook::Paused {
        steps.fault((Actor::Leader, "Reconciler::enqueue"), (job, "published, and the confirm is lost"), publish);
    }
    steps.fault((Actor::Leader, ""), (job, "dies: the next one continues at the cursors"), |state| {
        state.leader.found = None;
    });
}

/// Lost-job detection publishes what is nowhere. Without a lost disk, that is a violation.
fn requeue(steps: &mut Steps) {
    for (delivery, row) in steps.state.stored() {
        if is_lost(steps.state, delivery, steps.config.broken) {
            let job = row.next_job(delivery);
            let note = (Some(job), "the job is nowhere: it is published again");
            steps.usual((Actor::Leader, "Reconciler::requeue"), note, |state| {
                state.jobs.add(Message::due(job));
            });
        }
    }
}
