//! When a failed delivery is tried again (specification, section 8).

use std::{str::FromStr, time::Duration};

use time::OffsetDateTime;

/// The difference of the database's time, as two dispatchers know it, before a job counts as early. An early job is
/// delayed again, and may wait behind others for up to the shortest gap.
const EARLY_TOLERANCE: Duration = Duration::from_millis(250);
/// The shortest slack of a gap.
const MIN_SLACK: Duration = Duration::from_secs(30);
/// The longest gap that a queue can have: `x-message-ttl` has 32 bits of milliseconds.
const MAX_GAP: Duration = Duration::from_millis(u32::MAX as u64);
const MAX_STEPS: usize = 32;

/// When retries are due, measured from the first failure. The specification's default: 1 m, 5 m, 15 m, 1 h, 4 h, 12 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySchedule {
    steps: Vec<Duration>,
}

/// What is wrong with a schedule's text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// A step is not a duration.
    #[error("{step:?} is not a duration such as 500ms, 60s, 5m or 12h: {fault}")]
    NotADuration {
        /// The step as it was written.
        step: String,
        /// Why not.
        fault: String,
    },
    /// The steps do not grow.
    #[error("each step must be at least a millisecond after the one before; {0} is not")]
    NotAscending(String),
    /// More than 49 days between two steps.
    #[error("{0} is more than 49 days after the step before")]
    TooLong(String),
    /// More steps than anybody needs.
    #[error("at most {MAX_STEPS} steps")]
    TooMany,
}

impl Default for RetrySchedule {
    fn default() -> Self {
        let steps = [60, 5 * 60, 15 * 60, 60 * 60, 4 * 60 * 60, 12 * 60 * 60];
        Self { steps: steps.map(Duration::from_secs).to_vec() }
    }
}

impl FromStr for RetrySchedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut steps = Vec::new();
        let mut before = Duration::ZERO;
        for step in text.split(',').map(str::trim) {
            let duration = humantime::parse_duration(step)
                .map_err(|fault| ScheduleError::NotADuration { step: step.to_owned(), fault: fault.to_string() })?;
            let duration = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
            if duration <= before {
                return Err(ScheduleError::NotAscending(step.to_owned()));
            }
            if duration - before > MAX_GAP {
                return Err(ScheduleError::TooLong(step.to_owned()));
            }
            before = duration;
            steps.push(duration);
        }
        if steps.len() > MAX_STEPS {
            return Err(ScheduleError::TooMany);
        }
        Ok(Self { steps })
    }
}

impl RetrySchedule {
    /// The steps, each measured from the first failure.
    pub fn steps(&self) -> &[Duration] {
        &self.steps
    }

    /// The gaps, each of which has a queue: from each step to the one before, without duplicates, ascending.
    pub fn gaps(&self) -> Vec<Duration> {
        let before = std::iter::once(&Duration::ZERO).chain(&self.steps);
        let mut gaps: Vec<_> = self.steps.iter().zip(before).map(|(step, before)| *step - *before).collect();
        gaps.sort_unstable();
        gaps.dedup();
        gaps
    }

    /// The lateness that a job accepts in the queue of a gap, where it may wait behind jobs that are due later: 30 s, or
    /// a hundredth of the gap if that is longer. So a late retry goes through one queue, not through many shorter ones.
    pub fn slack(gap: Duration) -> Duration {
        MIN_SLACK.max(gap / 100)
    }

    /// When the next attempt is due after the `failures`-th failure, or `None` when the delivery is to be dropped.
    ///
    /// It is due at `first_failed_at` plus the step, however long attempts take. After an outage of the service, the
    /// failed attempt may have started late. If less than half of the shortest gap is left from `started_at`, the next
    /// attempt is due the shortest gap after `started_at`.
    pub fn next_due(
        &self,
        failures: u16,
        first_failed_at: OffsetDateTime,
        started_at: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let step = self.steps.get(usize::from(failures.checked_sub(1)?))?;
        let due = first_failed_at + *step;
        let shortest = self.shortest_gap();
        if due < started_at + shortest / 2 { Some(started_at + shortest) } else { Some(due) }
    }

    /// The gap whose queue a job takes that is due after this wait: the shortest one that is long enough, and longer than the
    /// wait by its slack at most. Otherwise the longest one that is not too long: a dispatcher gets the job early then, and
    /// delays it again.
    #[must_use]
    pub fn gap_for(&self, wait: Duration) -> Duration {
        let gaps = self.gaps();
        let above = gaps.iter().copied().find(|gap| *gap >= wait && *gap - wait <= Self::slack(*gap));
        let below = gaps.iter().copied().rfind(|gap| *gap <= wait);
        above.or(below).or(gaps.first().copied()).unwrap_or_default()
    }

    /// How early an attempt may be made: 250 ms, or a tenth of the shortest gap if that is less.
    pub fn early_tolerance(&self) -> Duration {
        EARLY_TOLERANCE.min(self.shortest_gap() / 10)
    }

    fn shortest_gap(&self) -> Duration {
        self.gaps().first().copied().unwrap_or_default()
    }
}

/// A gap in a queue's name: `60s`, or `500ms` if it is not in whole seconds.
pub fn gap_name(gap: Duration) -> String {
    if gap.subsec_millis() == 0 { format!("{}s", gap.as_secs()) } else { format!("{}ms", gap.as_millis()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    const START: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

    #[test]
    fn the_default_is_the_specifications_and_its_queues_are_named_by_their_gaps() {
        let schedule = RetrySchedule::default();
        assert_eq!(schedule, "60s,5m,15m,1h,4h,12h".parse().unwrap());
        let names: Vec<_> = schedule.gaps().into_iter().map(gap_name).collect();
        assert_eq!(names, ["60s", "240s", "600s", "2700s", "10800s", "28800s"]);
    }

    #[test]
    fn the_nth_retry_is_due_a_fixed_time_after_the_first_failure_however_long_attempts_take() {
        let schedule = RetrySchedule::default();
        let mut started = START;
        for (failures, minutes) in [(1, 1), (2, 5), (3, 15), (4, 60), (5, 240), (6, 720)] {
            let due = schedule.next_due(failures, START, started).unwrap();
            assert_eq!(due, START + time::Duration::minutes(minutes));
            started = due + Duration::from_millis(900);
        }
        assert_eq!(schedule.next_due(7, START, started), None);
    }

    #[test]
    fn after_an_outage_a_retry_with_less_than_half_of_the_shortest_gap_left_waits_for_a_whole_one() {
        let schedule = RetrySchedule::default();
        let late = START + time::Duration::hours(13);
        assert_eq!(schedule.next_due(2, START, late), Some(late + time::Duration::minutes(1)));
        let just_before = START + time::Duration::seconds(271);
        assert_eq!(schedule.next_due(2, START, just_before), Some(just_before + time::Duration::minutes(1)));
        let (half_left, due) = (START + time::Duration::seconds(270), START + time::Duration::minutes(5));
        assert_eq!(schedule.next_due(2, START, half_left), Some(due), "as if nothing had happened");
    }

    #[test]
    fn short_schedules_and_shared_gaps_work() {
        let schedule: RetrySchedule = "500ms, 1s,2500ms".parse().unwrap();
        let names: Vec<_> = schedule.gaps().into_iter().map(gap_name).collect();
        assert_eq!(names, ["500ms", "1500ms"]);
    }

    #[test]
    fn a_bad_schedule_is_refused_with_its_fault() {
        for (text, part) in [
            ("", "not a duration"),
            ("1m,,5m", "not a duration"),
            ("ten", "\"ten\""),
            ("5m,1m", "1m"),
            ("1m,1m", "1m"),
            ("0s", "0s"),
            ("1h,60days", "49 days"),
        ] {
            let fault = text.parse::<RetrySchedule>().unwrap_err().to_string();
            assert!(fault.contains(part), "{text:?}: {fault}");
        }
    }

    #[test]
    fn a_schedule_may_have_blanks_between_its_steps() {
        let schedule: RetrySchedule = " 90s, 500s,1h".parse().unwrap();
        assert_eq!(schedule.steps(), [90, 500, 3600].map(Duration::from_secs));
    }

    #[test]
    fn a_gap_is_at_most_the_longest_time_for_which_a_queue_can_hold_a_message() {
        for (text, good) in [
            ("4294967295ms", true),
            ("4294967296ms", false),
            ("4294967295ms,8589934590ms", true),
            ("4294967295ms,8589934591ms", false),
        ] {
            assert_eq!(text.parse::<RetrySchedule>().is_ok(), good, "{text}");
        }
    }

    #[test]
    fn a_schedule_has_32_steps_at_most() {
        let with_steps = |count: u32| {
            let steps: Vec<_> = (1..=count).map(|minute| format!("{minute}m")).collect();
            steps.join(",").parse::<RetrySchedule>()
        };
        assert_eq!(with_steps(32).unwrap().steps().len(), 32);
        assert_eq!(with_steps(33), Err(ScheduleError::TooMany));
    }

    #[test]
    fn a_wait_that_fits_no_gap_is_made_of_shorter_ones() {
        let schedule = RetrySchedule::default();
        let through = |seconds| {
            let (mut left, mut path) = (Duration::from_secs(seconds), Vec::new());
            while !left.is_zero() {
                let gap = schedule.gap_for(left);
                path.push(gap.as_secs());
                left = left.saturating_sub(gap);
            }
            path
        };
        assert_eq!(through(28_795), [28_800], "a retry of the schedule, five seconds after its attempt began");
        assert_eq!(through(28_760), [28_800], "a late one");
        assert_eq!(through(28_512), [28_800], "the latest one: a hundredth of the gap");
        assert_eq!(through(28_511), [10_800, 10_800, 2_700, 2_700, 600, 600, 240, 60, 60]);
        assert_eq!(through(2_670), [2_700], "half a minute is more than a hundredth of that gap");
        assert_eq!(through(2_669), [600, 600, 600, 600, 240, 60]);
        assert_eq!(through(12_000), [10_800, 600, 600]);
        assert_eq!(through(700), [600, 60, 60]);
        assert_eq!(through(20), [60]);
        assert_eq!(through(40_000), [28_800, 10_800, 240, 60, 60, 60], "of a longer schedule than ours");
    }

    proptest! {
        #[test]
        fn an_attempt_on_time_is_never_followed_early_or_by_drift(steps in prop::collection::btree_set(1_000_u64..1_000_000, 1..8), late in 0_u64..400) {
            let text: Vec<_> = steps.iter().map(|step| format!("{step}ms")).collect();
            let schedule: RetrySchedule = text.join(",").parse().unwrap();
            let shortest = schedule.gaps()[0];
            let late = Duration::from_millis(late).min(shortest / 2);
            let mut started = START;
            for (index, step) in steps.iter().enumerate() {
                let due = schedule.next_due(u16::try_from(index).unwrap() + 1, START, started).unwrap();
                prop_assert_eq!(due, START + Duration::from_millis(*step));
                started = due + late;
            }
        }
    }
}
