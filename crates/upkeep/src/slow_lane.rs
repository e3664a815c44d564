//! Which webhooks have no jobs left in the slow lane. The lane may never be empty.

use std::time::{Duration, Instant};

/// How long a webhook counts as one with jobs in the slow lane after its stamp was renewed.
const STAMP: Duration = Duration::from_secs(60);
/// The longest time in which the slow lane hands out one job. A dispatcher's slots are faster even while all of their
/// receivers hang.
const HAND_OUT: Duration = Duration::from_millis(100);

/// What the leader saw of the slow lane's queue. The queue hands out jobs in the order in which they came, and each
/// hand-out renews a stamp. When a stamp is older than it takes to hand out all jobs that were there, its webhook has
/// none left, even if the queue is never empty.
pub(crate) struct SlowLane {
    since: Instant,
    at: Instant,
    /// How long it takes, from the last look on, to hand out what was there at any look.
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

    pub(crate) fn stale(&self, now: Instant) -> Stale {
        if self.is_empty {
            return Stale::OfEmptyLane(STAMP);
        }
        let age = STAMP + self.turn;
        if now.duration_since(self.since) >= age { Stale::WhileTaken(age) } else { Stale::Unknown }
    }
}

/// Which stamps are stale, so that their webhooks have no job in the lane: those older than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The lane is empty.
    OfEmptyLane(Duration),
    /// The lane is not empty. This holds only while somebody takes jobs from it.
    WhileTaken(Duration),
    /// The lane has not been watched for long enough.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
