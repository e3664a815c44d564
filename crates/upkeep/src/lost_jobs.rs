//! Lost-job detection: which overdue deliveries have lost their jobs, and when the dispatchers are merely behind. A few
//! looks at the queue decide that. No delivery is remembered.

use std::time::{Duration, Instant};

use ledger::LostBefore;
use time::OffsetDateTime;

/// With this many ready messages, dispatchers are behind.
const BEHIND: u32 = 100;

/// A look at the queues of due jobs, those of all lanes, which count as one.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// Messages that no dispatcher has taken.
    pub(crate) ready: u32,
    pub(crate) at: Instant,
    /// The time just before the look, by the database's clock, which decides when deliveries are due.
    pub(crate) time: OffsetDateTime,
}

/// What the leader saw of that queue.
///
/// A look that found the queue empty proves that dispatchers had taken every job published before it. A `grace` later
/// they are done with these jobs. No job is published long after its delivery is due: whoever hands one out again makes
/// its delivery due again. So a delivery that was due a `grace` before that look, and still waits a `grace` after it,
/// has no job. A retry may be late on its queue: it was due a `slack` before that look, if that is longer.
///
/// A job that a dispatcher gave back is on the queue again. So deliveries count as lost only after a calm `grace`.
#[derive(Default)]
pub(crate) struct LostJobs {
    /// Every look since then found few messages.
    calm_since: Option<Instant>,
    /// Every look since then found some.
    busy_since: Option<Instant>,
    /// A look that found no message, until it is a `grace` old.
    candidate: Option<Look>,
    /// The latest candidate that has become a `grace` old.
    empty: Option<Look>,
}

impl LostJobs {
    pub(crate) fn look(&mut self, look: Look, grace: Duration) {
        if look.ready >= BEHIND {
            self.calm_since = None;
        } else {
            self.calm_since.get_or_insert(look.at);
        }
        if self.candidate.is_some_and(|empty| look.at.duration_since(empty.at) >= grace) {
            self.empty = self.candidate.take();
        }
        if look.ready == 0 {
            self.busy_since = None;
            self.candidate.get_or_insert(look);
        } else {
            self.busy_since.get_or_insert(look.at);
        }
    }

    /// Returns which deliveries have lost their jobs, if the look `now` can tell. `slack`: the greatest lateness of a
    /// retry on its queue.
    pub(crate) fn lost_before(&self, now: Look, grace: Duration, slack: Duration) -> Option<LostBefore> {
        let is_calm = self.calm_since.is_some_and(|since| now.at.duration_since(since) >= grace);
        let empty = self.empty.filter(|_| is_calm)?;
        Some(LostBefore { due: empty.time - grace, retry_due: empty.time - grace.max(slack), judged_at: now.time })
    }

    /// Whether the queue was not empty for a `grace`. What is overdue may then be on it.
    pub(crate) fn is_behind(&self, now: Instant, grace: Duration) -> bool {
        self.busy_since.is_some_and(|since| now.duration_since(since) >= grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);
    const SLACK: Duration = Duration::from_secs(288);
    const BEGAN: OffsetDateTime = time::macros::datetime!(2026-03-01 09:30 UTC);

    /// Takes looks: seconds after the beginning, and ready messages. Returns the second before which lost deliveries
    /// were due, by the last look.
    fn lost_before(looks: impl IntoIterator<Item = (u64, u32)>) -> Option<i64> {
        let (began, mut lost_jobs, mut lost) = (Instant::now(), LostJobs::default(), None);
        for (second, ready) in looks {
            let after = Duration::from_secs(second);
            let look = Look { ready, at: began + after, time: BEGAN + after };
            lost_jobs.look(look, GRACE);
            lost = lost_jobs.lost_before(look, GRACE, SLACK);
            assert!(lost.is_none_or(|lost| lost.judged_at == look.time && lost.due - lost.retry_due == SLACK - GRACE));
        }
        lost.map(|lost| (lost.due - BEGAN).whole_seconds())
    }

    #[test]
    fn what_was_due_a_grace_before_an_empty_look_is_lost_a_grace_after_it() {
        assert_eq!(lost_before([]), None, "nobody has looked");
        assert_eq!(lost_before([(0, 0), (59, 0)]), None, "a dispatcher may be at it");
        assert_eq!(lost_before([(100, 0), (160, 0)]), Some(40));
        assert_eq!(lost_before([(100, 0), (120, 1), (160, 1)]), Some(40), "what came since is younger");
        assert_eq!(lost_before([(100, 1), (160, 1), (220, 1)]), None, "its job may be the one on the queue");
    }

    #[test]
    fn the_empty_look_that_counts_advances() {
        let every_five_seconds = |until: u64| (0..=until).step_by(5).map(|second| (second, 0));
        assert_eq!(lost_before(every_five_seconds(60)), Some(-60));
        assert_eq!(lost_before(every_five_seconds(115)), Some(-60), "the one of a minute has to be as old");
        assert_eq!(lost_before(every_five_seconds(120)), Some(0));
        assert_eq!(lost_before(every_five_seconds(615)), Some(9 * 60 - 60));
        let then_busy = every_five_seconds(120).chain((125..=600).step_by(5).map(|second| (second, 1)));
        assert_eq!(lost_before(then_busy), Some(120 - 60), "the last empty one, and none after it");
    }

    #[test]
    fn nothing_is_lost_unless_few_jobs_were_seen_at_every_look_for_the_whole_grace() {
        let few = BEHIND - 1;
        assert_eq!(lost_before([(0, 0), (60, few), (120, few)]), Some(-60));
        assert_eq!(lost_before([(0, 0), (60, few), (120, BEHIND)]), None);
        assert_eq!(lost_before([(0, 0), (60, BEHIND), (65, few), (124, few)]), None, "it begins anew");
        assert_eq!(lost_before([(0, 0), (60, BEHIND), (65, few), (125, few)]), Some(-60));
        assert_eq!(lost_before([(0, BEHIND), (10, 0), (69, 0)]), None, "nor is the look old enough");
    }

    #[test]
    fn dispatchers_are_behind_when_the_queue_was_never_empty_for_a_grace() {
        let (began, mut lost_jobs) = (Instant::now(), LostJobs::default());
        assert!(!lost_jobs.is_behind(began, GRACE), "nobody has looked");
        for (second, ready, expected) in [(0, 1, false), (60, 1, true), (61, 0, false), (62, 1, false), (122, 1, true)]
        {
            let after = Duration::from_secs(second);
            lost_jobs.look(Look { ready, at: began + after, time: BEGAN + after }, GRACE);
            assert_eq!(lost_jobs.is_behind(began + after, GRACE), expected, "after {second} s");
        }
    }
}
