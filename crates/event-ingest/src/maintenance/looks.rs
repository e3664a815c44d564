//! Whether an overdue delivery's job is lost, or the dispatchers are merely behind: decided without asking anybody.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::{DeliveryId, Job};
use ledger::Waiting;
use time::OffsetDateTime;

/// From so many ready messages on, dispatchers are behind.
const BEHIND: u32 = 100;
/// Suspects that are remembered, at most.
const MOST: usize = 10_000;
/// Jobs that are enqueued again at a time, at most.
const RIPE: usize = 1_000;

/// What the leader saw of the queue of jobs that are due.
#[derive(Default)]
pub(crate) struct Looks {
    /// Since when every look found few messages.
    calm_since: Option<Instant>,
    /// When a look last found none.
    empty_at: Option<Instant>,
}

impl Looks {
    pub(crate) fn look(&mut self, ready: u32, now: Instant) {
        if ready >= BEHIND {
            self.calm_since = None;
        } else {
            self.calm_since.get_or_insert(now);
        }
        if ready == 0 {
            self.empty_at = Some(now);
        }
    }

    /// Whether every look of the last `grace` found few messages.
    pub(crate) fn is_calm(&self, now: Instant, grace: Duration) -> bool {
        self.calm_since.is_some_and(|since| now.duration_since(since) >= grace)
    }
}

/// How long a webhook counts as one with jobs in the slow lane once its stamp is not renewed.
const STAMP: Duration = Duration::from_secs(60);
/// How long the slow lane takes to hand out one job, at the most: a dispatcher's slots there do more even while all of their
/// receivers hang.
const HAND_OUT: Duration = Duration::from_millis(100);

/// What the leader saw of the slow lane's queue. It hands out what came first, and each hand-out renews a stamp: so a webhook
/// whose stamp has not been renewed for as long as it takes to hand out all that was there has no job in it any more, though
/// the queue may never be empty.
pub(crate) struct SlowLane {
    since: Instant,
    at: Instant,
    /// How long it takes to hand out what was there at any look, from the last one on.
    turn: Duration,
    is_empty: bool,
}

impl SlowLane {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, at: now, turn: Duration::ZERO, is_empty: false }
    }

    pub(crate) fn look(&mut self, ready: u32, now: Instant) {
        let left = self.turn.saturating_sub(now.duration_since(self.at));
        *self = Self { since: self.since, at: now, turn: left.max(HAND_OUT * ready), is_empty: ready == 0 };
    }

    /// Which stamps say nothing any more.
    pub(crate) fn stale(&self, now: Instant) -> Stale {
        if self.is_empty {
            return Stale::OfEmptyLane(STAMP);
        }
        let age = STAMP + self.turn;
        if now.duration_since(self.since) >= age { Stale::WhileTaken(age) } else { Stale::Unknown }
    }
}

/// Which stamps say nothing any more: those that are older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The lane is empty.
    OfEmptyLane(Duration),
    /// As long as somebody takes what is in the lane.
    WhileTaken(Duration),
    /// The lane was not watched for long enough.
    Unknown,
}

/// Deliveries that were seen overdue. A job is believed lost when its delivery is overdue for another `grace`, and the
/// queue was empty meanwhile: whatever was on it has been taken.
#[derive(Default)]
pub(crate) struct Suspects(HashMap<DeliveryId, Suspect>);

struct Suspect {
    attempt: u16,
    due: OffsetDateTime,
    since: Instant,
}

impl Suspects {
    pub(crate) fn see(&mut self, overdue: &[Waiting], now: Instant) {
        for Waiting { job, due, .. } in overdue {
            let suspect = Suspect { attempt: job.attempt, due: *due, since: now };
            let is_known = self.0.get(&job.delivery).map(|known| known.attempt == job.attempt);
            if is_known == Some(false) || (is_known.is_none() && self.0.len() < MOST) {
                self.0.insert(job.delivery, suspect);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes those that were suspected for `grace` out, if the queue was seen empty since.
    pub(crate) fn take_ripe(&mut self, looks: &Looks, now: Instant, grace: Duration) -> Vec<Job> {
        let is_ripe = |suspect: &Suspect| {
            now.duration_since(suspect.since) >= grace && looks.empty_at.is_some_and(|empty| empty > suspect.since)
        };
        let ripe = self.0.iter().filter(|(_, suspect)| is_ripe(suspect));
        let ripe: Vec<_> =
            ripe.take(RIPE).map(|(id, suspect)| Job { delivery: *id, attempt: suspect.attempt }).collect();
        for job in &ripe {
            self.0.remove(&job.delivery);
        }
        ripe
    }

    /// Whether some are suspected for `grace` already.
    pub(crate) fn any_old(&self, now: Instant, grace: Duration) -> bool {
        self.0.values().any(|suspect| now.duration_since(suspect.since) >= grace)
    }

    /// When the most overdue one was due.
    pub(crate) fn oldest_due(&self) -> Option<OffsetDateTime> {
        self.0.values().map(|suspect| suspect.due).min()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    fn overdue(id: u128, attempt: u16) -> Waiting {
        let job = Job { delivery: Uuid::from_u128(id).into(), attempt };
        Waiting { job, due: OffsetDateTime::UNIX_EPOCH, webhook: Uuid::nil().into(), is_active: true }
    }

    #[test]
    fn it_is_calm_only_after_few_jobs_were_seen_at_every_look_for_the_whole_grace() {
        let (mut looks, start) = (Looks::default(), Instant::now());
        assert!(!looks.is_calm(start, GRACE), "nobody has looked");
        looks.look(BEHIND - 1, start);
        assert!(!looks.is_calm(start + GRACE / 2, GRACE));
        assert!(looks.is_calm(start + GRACE, GRACE));
        looks.look(BEHIND, start + GRACE);
        looks.look(0, start + GRACE * 2);
        assert!(!looks.is_calm(start + GRACE * 2, GRACE), "it begins anew");
        assert!(looks.is_calm(start + GRACE * 3, GRACE));
    }

    #[test]
    fn a_stamp_is_stale_when_the_lane_is_empty_or_all_that_was_in_it_has_been_handed_out() {
        let start = Instant::now();
        let (second, mut lane) = (Duration::from_secs(1), SlowLane::new(start));
        lane.look(0, start);
        assert_eq!(lane.stale(start), Stale::OfEmptyLane(STAMP));
        lane.look(1_000, start + second);
        assert_eq!(lane.stale(start + second), Stale::Unknown, "nobody knows how long it has been");
        lane.look(10, start + second * 51);
        assert_eq!(lane.stale(start + second * 161), Stale::WhileTaken(STAMP + second * 50), "half of it is left");
        lane.look(10, start + second * 1_000);
        assert_eq!(lane.stale(start + second * 1_000), Stale::WhileTaken(STAMP + second));
        lane.look(2_000, start + second * 1_001);
        assert_eq!(lane.stale(start + second * 1_001), Stale::WhileTaken(STAMP + second * 200));
    }

    #[test]
    fn a_suspect_is_ripe_when_it_is_overdue_for_long_and_the_queue_was_seen_empty_since() {
        let (mut looks, mut suspects, start) = (Looks::default(), Suspects::default(), Instant::now());
        looks.look(0, start);
        suspects.see(&[overdue(1, 1)], start);
        looks.look(1, start + GRACE);
        assert!(suspects.take_ripe(&looks, start + GRACE, GRACE).is_empty(), "its job may be the one on the queue");
        assert!(suspects.any_old(start + GRACE, GRACE));
        looks.look(0, start + GRACE / 2);
        assert!(suspects.take_ripe(&looks, start + GRACE / 2, GRACE).is_empty(), "not for long enough");
        assert_eq!(suspects.take_ripe(&looks, start + GRACE, GRACE), [overdue(1, 1).job]);
        assert!(suspects.take_ripe(&looks, start + GRACE, GRACE).is_empty(), "taken once");
    }

    #[test]
    fn an_attempt_that_was_made_meanwhile_begins_the_suspicion_anew() {
        let (mut looks, mut suspects, start) = (Looks::default(), Suspects::default(), Instant::now());
        suspects.see(&[overdue(1, 1)], start);
        suspects.see(&[overdue(1, 2)], start + GRACE);
        suspects.see(&[overdue(1, 2)], start + GRACE + GRACE / 2);
        looks.look(0, start + GRACE * 2);
        assert!(suspects.take_ripe(&looks, start + GRACE + GRACE / 2, GRACE).is_empty());
        assert_eq!(suspects.take_ripe(&looks, start + GRACE * 2, GRACE), [overdue(1, 2).job]);
    }

    #[test]
    fn memory_and_the_jobs_of_one_pass_are_bounded() {
        let (mut looks, mut suspects, start) = (Looks::default(), Suspects::default(), Instant::now());
        let many: Vec<_> = (0..20_000).map(|id| overdue(id, 1)).collect();
        suspects.see(&many, start);
        looks.look(0, start + GRACE);
        let mut passes = 0;
        while !suspects.take_ripe(&looks, start + GRACE, GRACE).is_empty() {
            passes += 1;
        }
        assert_eq!(passes, MOST / RIPE);
    }
}
