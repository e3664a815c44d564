//! The leader: the rebuild after a lost disk, and lost-job detection.

use domain::{BrokerData, Presence};

use crate::prelude::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    sentinel: Sentinel,
    /// The jobs of waiting deliveries, to be published.
    pub(crate) found: Messages,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sentinel {
    Kept,
    /// It is gone. The presence that the pass before has seen.
    Gone(Presence),
    /// A rebuild publishes the deliveries with a due time, then the untried ones.
    Due,
    Untried,
    Rebuilt,
}

impl Leader {
    pub(crate) const NEW: Self = Self { sentinel: Sentinel::Kept, found: Bag::EMPTY };
    pub(crate) const LOST: Self = Self { sentinel: Sentinel::Gone(Presence::Unknown), found: Bag::EMPTY };

    /// There is no rebuild to come.
    pub(crate) fn is_quiet(&self, config: &Config) -> bool {
        self.sentinel == Sentinel::Kept || config.is(Broken::NoRebuild)
    }

    /// The sentinel of a rebuild under way is declared.
    pub(crate) fn is_rebuilding(&self) -> bool {
        !matches!(self.sentinel, Sentinel::Kept | Sentinel::Gone(_))
    }

    pub(crate) fn tick(&mut self) {
        self.found.each(|message| message.wait = later(message.wait));
    }

    /// The cursor moves past the chunk.
    fn reach(&mut self) {
        let next = if self.sentinel == Sentinel::Due { Sentinel::Untried } else { Sentinel::Rebuilt };
        *self = Self { sentinel: next, found: Bag::EMPTY };
    }
}

/// Returns whether a row is overdue for lost-job detection (`find_overdue.sql`), and its job is nowhere.
pub(crate) fn is_lost(state: &State, delivery: usize, config: &Config) -> bool {
    let Some(mut row) = state.rows[delivery] else { return false };
    row.outbox = row.outbox.filter(|_| !config.is(Broken::DetectionIgnoresOutbox));
    row.held = row.held.filter(|_| !config.is(Broken::DetectionIgnoresHeld));
    let is_overdue = state.webhook == WebhookState::Active && row.wait() == 0;
    is_overdue && row.needs_message(false) && !state.is_somewhere(delivery)
}

pub(crate) fn steps(steps: &mut Steps) {
    let (config, Leader { sentinel, found }) = (steps.config, steps.state.leader);
    match sentinel {
        Sentinel::Gone(before) if !config.is(Broken::NoRebuild) => {
            let (name, note, next) = match Presence::Gone.after(before) {
                BrokerData::Lost => ("Reconciler::begin", "the sentinel is lost: a rebuild begins", Sentinel::Due),
                _ => ("Reconciler::broker_data", "the sentinel may be lost", Sentinel::Gone(Presence::Gone)),
            };
            begin(steps, name, note, next);
        }
        Sentinel::Kept | Sentinel::Gone(_) => requeue(steps),
        Sentinel::Rebuilt => begin(steps, "Leader::rebuild_finish", "the rebuild has ended", Sentinel::Kept),
        _ if found != Bag::EMPTY => enqueue(steps, found),
        _ => find(steps, sentinel),
    }
}

/// A rebuild begins or ends: what was made and attempted before it does not count.
fn begin(steps: &mut Steps, name: &'static str, note: &'static str, sentinel: Sentinel) {
    let after = steps.usual((name, None), note);
    after.leader.sentinel = sentinel;
    after.stored_mut().for_each(|(_, row)| row.is_published = false);
}

/// As `find_waiting.sql`.
fn find(steps: &mut Steps, sentinel: Sentinel) {
    let (config, state, mut found) = (steps.config, steps.state, Messages::EMPTY);
    let is_missed = sentinel == Sentinel::Untried && config.is(Broken::RebuildMissesUntried);
    for (delivery, mut row) in state.stored().filter(|_| !is_missed && state.webhook != WebhookState::Deleted) {
        row.outbox = row.outbox.filter(|_| config.is(Broken::RebuildSkipsOutbox));
        let is_in_stream = (sentinel == Sentinel::Due) == row.progress.next_attempt_at.is_some();
        if is_in_stream && row.needs_message(row.is_published && !config.is(Broken::RebuildRepeats)) {
            found.add(Message { wait: row.wait(), ..Message::of([row.next_job(delivery)]) });
        }
    }
    let note = if found == Bag::EMPTY { "nothing is left to publish" } else { "found to wait" };
    let after = steps.usual(("Leader::waiting_find", first_job(&found)), note);
    after.leader.found = found;
    if found == Bag::EMPTY {
        after.leader.reach();
    }
}

fn enqueue(steps: &mut Steps, found: Messages) {
    let (schedule, is_paused) = (&steps.config.schedule, steps.state.webhook == WebhookState::Paused);
    let of = ("Reconciler::enqueue", first_job(&found));
    steps.call(of, ["published, and confirmed", "published, and the confirm is lost"], |state, answer| {
        for message in found.iter() {
            match message.jobs.first().filter(|_| is_paused) {
                Some(job) => _ = state.row(job.of()).held.get_or_insert(false),
                None => state.jobs.add(message.queued(schedule)),
            }
        }
        if answer == Answer::Comes {
            state.leader.reach();
        }
    });
    let dies = "dies: the next one continues at the cursors";
    steps.may(May::Fault, ("", of.1), dies, |state| state.leader.found = Bag::EMPTY);
}

/// Lost-job detection publishes what is nowhere. Without a lost disk, that is a violation.
fn requeue(steps: &mut Steps) {
    let state = steps.state;
    for (delivery, row) in state.stored().filter(|(delivery, _)| is_lost(state, *delivery, steps.config)) {
        let job = row.next_job(delivery);
        let after = steps.usual(("Reconciler::requeue", Some(job)), "the job is nowhere: it is published again");
        after.jobs.add(Message::of([job]));
    }
}
