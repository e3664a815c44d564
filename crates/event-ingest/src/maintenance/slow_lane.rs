//! Which webhooks have no jobs in the slow lane any more, though it may never be empty.

use std::time::{Duration, Instant};

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
