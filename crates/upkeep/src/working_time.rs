//! The time that counts for lost-job detection: the time in which database, broker and a dispatcher of each lane worked
//! without a break.

use std::time::Duration;

use time::OffsetDateTime;

/// With this many ready messages in the main lane, dispatchers may be behind.
const BUSY_MESSAGES: u32 = 100;
/// After this many graces, an overdue job is lost however much the lanes hold.
pub(crate) const MAX_GRACES: u32 = 6;

/// When that time began. Its clock is the database's, which decides when deliveries are due.
#[derive(Default)]
pub(crate) struct WorkingTime {
    latest: Option<OffsetDateTime>,
    since: Option<OffsetDateTime>,
    /// Since then, each pass found few messages in the main lane as well.
    calm_since: Option<OffsetDateTime>,
}

impl WorkingTime {
    /// Notes that all of them work `now`, with this number of `ready` messages in the main lane. The time begins anew if nobody
    /// looked for longer than the `pause`, or the clock was set back.
    pub(crate) fn note(&mut self, now: OffsetDateTime, ready: u32, pause: Duration) {
        if !self.latest.is_some_and(|latest| (latest..=latest + pause).contains(&now)) {
            *self = Self::default();
        }
        self.latest = Some(now);
        self.since.get_or_insert(now);
        if ready < BUSY_MESSAGES {
            self.calm_since.get_or_insert(now);
        } else {
            self.calm_since = None;
        }
    }

    /// Returns the time before which the deliveries were due that have lost their jobs, if they still wait `now`.
    pub(crate) fn lost_before(&self, now: OffsetDateTime, grace: Duration) -> Option<OffsetDateTime> {
        let [calm, any] = [(self.calm_since, grace), (self.since, grace.saturating_mul(MAX_GRACES))]
            .map(|(since, overdue)| since.filter(|since| *since + overdue < now).map(|_| now - overdue));
        calm.or(any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(600);
    const PAUSE: Duration = Duration::from_secs(25);
    const BEGAN: OffsetDateTime = time::macros::datetime!(2026-03-01 09:30 UTC);

    /// Returns the second before which lost deliveries were due, after passes every 5 s during each period, given as
    /// its first and last second and the ready messages.
    fn lost_before(periods: &[(i64, i64, u32)]) -> Option<i64> {
        let (mut working, mut lost) = (WorkingTime::default(), None);
        for (first, last, ready) in periods {
            for second in (*first..=*last).step_by(5) {
                let now = BEGAN + time::Duration::seconds(second);
                working.note(now, *ready, PAUSE);
                lost = working.lost_before(now, GRACE);
            }
        }
        lost.map(|lost| (lost - BEGAN).whole_seconds())
    }

    #[test]
    fn a_calm_grace_proves_that_a_job_overdue_by_a_grace_is_lost() {
        assert_eq!(lost_before(&[]), None, "nobody has looked");
        assert_eq!(lost_before(&[(0, 600, BUSY_MESSAGES - 1)]), None);
        assert_eq!(lost_before(&[(0, 605, BUSY_MESSAGES - 1)]), Some(5));
        assert_eq!(lost_before(&[(0, 1_000, BUSY_MESSAGES - 1)]), Some(400));
    }

    #[test]
    fn while_the_main_lane_is_busy_a_job_is_lost_after_six_graces() {
        assert_eq!(lost_before(&[(0, 3_600, BUSY_MESSAGES)]), None);
        assert_eq!(lost_before(&[(0, 3_605, BUSY_MESSAGES)]), Some(5));
        assert_eq!(lost_before(&[(0, 3_600, 0), (3_605, 3_605, BUSY_MESSAGES)]), Some(5), "it was calm until now");
        assert_eq!(lost_before(&[(0, 600, BUSY_MESSAGES), (605, 1_205, 0)]), None, "the calm begins anew");
        assert_eq!(lost_before(&[(0, 600, BUSY_MESSAGES), (605, 1_210, 0)]), Some(610));
    }

    #[test]
    fn time_begins_anew_after_a_pause_or_when_the_clock_is_set_back() {
        assert_eq!(lost_before(&[(0, 700, 0), (725, 725, 0)]), Some(125), "a pause of 25 s is none");
        assert_eq!(lost_before(&[(0, 700, 0), (726, 726, 0)]), None);
        assert_eq!(lost_before(&[(0, 700, 0), (730, 1_330, 0)]), None, "a grace after it");
        assert_eq!(lost_before(&[(0, 700, 0), (730, 1_335, 0)]), Some(735));
        assert_eq!(lost_before(&[(0, 700, 0), (600, 1_200, 0)]), None, "the clock was set back");
        assert_eq!(lost_before(&[(0, 7_300, BUSY_MESSAGES), (7_326, 7_326, BUSY_MESSAGES)]), None);
    }
}
