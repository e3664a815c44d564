//! The reaction of a consumer to attachments that ended early.

use std::time::Duration;

use tokio::time::Instant;

use crate::connect::CONSUME_AGAIN;

/// The latest attachments in a row that ended within [`EARLY_END_TIME`]. A message that no client can read ends each connection that
/// it is delivered to, and RabbitMQ counts a delivery of every message of the prefetch. So after [`MAX_EARLY_ENDS`] of them, a
/// consumer receives one message at a time for as long: the counts of the others do not rise, and those before the unreadable
/// one are acknowledged before it comes. It attaches again without a pause, so that the broker soon parks that message.
///
/// Only the events queue has foreign messages and a limit at which the broker parks them.
pub(crate) struct EarlyEnds {
    are_watched: bool,
    count: u32,
    /// When the first of them ended, or the latest of them in which a message was acknowledged.
    since: Option<Instant>,
    /// Set if the latest attempt reached the queue: the topology is declared then.
    is_declared: bool,
}

/// An attachment that lasts less ended early.
pub(crate) const EARLY_END_TIME: Duration = Duration::from_secs(1);
/// The number of early ends in a row after which the queue's head is suspect.
const MAX_EARLY_ENDS: u32 = 3;
/// The broker has parked an unreadable head by then: its delivery limit is 1,000.
const PARKED_WITHIN: Duration = Duration::from_secs(5 * 60);

impl EarlyEnds {
    /// Starts for a queue, which is watched if it is the events queue.
    pub(crate) const fn new(are_watched: bool) -> Self {
        Self { are_watched, count: 0, since: None, is_declared: false }
    }

    /// Returns true if the message at the queue's head may be unreadable.
    pub(crate) const fn suspect_head(&self) -> bool {
        self.are_watched && self.count >= MAX_EARLY_ENDS
    }

    /// The role of the next connection.
    pub(crate) const fn role(&self) -> &'static str {
        if self.suspect_head() && self.is_declared { CONSUME_AGAIN } else { "consume" }
    }

    /// Notes an attempt that did not reach the queue: somebody may have deleted it.
    pub(crate) const fn failed(&mut self) {
        self.is_declared = false;
    }

    /// Returns true if the consumer attaches again without a pause: until the broker must have parked the head. If
    /// connections still end then, there is another reason.
    pub(crate) fn may_hurry(&self, now: Instant) -> bool {
        self.suspect_head() && self.since.is_some_and(|since| now < since + PARKED_WITHIN)
    }

    /// Counts an attachment that ended after a time. Returns true if it ended early.
    pub(crate) fn count(&mut self, lasted: Duration, acknowledged: bool, now: Instant) -> bool {
        // One that began with a suspect head receives more messages after `EARLY_END_TIME`: it is to last as long again.
        let enough = if self.suspect_head() { 2 * EARLY_END_TIME } else { EARLY_END_TIME };
        if lasted >= enough {
            (self.count, self.since) = (0, None);
            return false;
        }
        (self.count, self.is_declared) = (self.count.saturating_add(1), true);
        if acknowledged || self.since.is_none() {
            self.since = Some(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_early_ends_in_a_row_make_the_head_suspect_until_an_attachment_lasts() {
        let (mut ends, early, late, grown) =
            (EarlyEnds::new(true), EARLY_END_TIME / 2, EARLY_END_TIME, 2 * EARLY_END_TIME);
        for (lasted, is_suspect) in [
            (early, false),
            (early, false),
            (late, false),
            (early, false),
            (early, false),
            (early, true),
            (late, true),
            (early, true),
            (grown, false),
            (late, false),
        ] {
            let is_early = ends.count(lasted, false, Instant::now());
            assert_eq!(is_early, lasted == early || is_suspect, "{lasted:?}");
            assert_eq!(ends.suspect_head(), is_suspect, "{lasted:?}");
        }
    }

    #[test]
    fn a_lane_is_never_suspect() {
        let mut ends = EarlyEnds::new(false);
        assert!((0..100).all(|_| ends.count(EARLY_END_TIME / 2, false, Instant::now())));
        assert_eq!((ends.suspect_head(), ends.may_hurry(Instant::now()), ends.role()), (false, false, "consume"));
    }

    #[test]
    fn the_topology_is_declared_again_after_an_attempt_that_failed() {
        let mut ends = EarlyEnds::new(true);
        for role in ["consume", "consume", CONSUME_AGAIN, CONSUME_AGAIN] {
            ends.count(EARLY_END_TIME / 2, false, Instant::now());
            assert_eq!(ends.role(), role);
        }
        ends.failed();
        assert_eq!((ends.role(), ends.suspect_head()), ("consume", true));
        ends.count(EARLY_END_TIME / 2, false, Instant::now());
        assert_eq!(ends.role(), CONSUME_AGAIN);
    }

    #[test]
    fn a_consumer_pauses_again_once_the_broker_must_have_parked_the_head() {
        let (mut ends, mut now, step) = (EarlyEnds::new(true), Instant::now(), PARKED_WITHIN / 100);
        let mut hurries_after = |acknowledged| {
            now += step;
            ends.count(step.min(EARLY_END_TIME / 2), acknowledged, now);
            ends.may_hurry(now)
        };
        let hurried = (0..200).filter(|_| hurries_after(false)).count();
        assert_eq!(hurried, 98, "from the third on, of the first hundred");
        assert!(hurries_after(true), "another message is at the head");
        assert_eq!((0..200).filter(|_| hurries_after(false)).count(), 99);
    }
}
