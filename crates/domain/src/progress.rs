//! How far a delivery has come, and what a job or an outcome means for it (crates/README.md, invariants 3 and 4).

use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use time::OffsetDateTime;

use crate::{Job, OutcomeClass, RetrySchedule, all::all};

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr, VariantArray)]
#[cfg_attr(feature = "diesel", derive(diesel::expression::AsExpression, diesel::deserialize::FromSqlRow))]
#[cfg_attr(feature = "diesel", diesel(sql_type = diesel::sql_types::Text))]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    /// No attempt has been made.
    Pending,
    /// At least one attempt failed, and another one is due.
    Retrying,
    /// The receiver answered 2xx.
    Succeeded,
    /// Every attempt of the schedule failed.
    Dropped,
    /// The webhook was deleted while the delivery waited, or its administrator cancelled waiting deliveries.
    Cancelled,
    /// The webhook was paused when the event came. There is no job.
    Skipped,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 6] = all(Self::VARIANTS);

    /// The name in the ledger and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether an attempt is still to be made.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Pending | Self::Retrying)
    }
}

/// How far a delivery has come, as the ledger knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The state.
    pub state: DeliveryState,
    /// Attempts made and recorded.
    pub attempts: u16,
    /// How many of these precede the current run of the schedule. A resend begins a new run.
    pub run_base: u16,
    /// When the first attempt of this run failed: the schedule's origin.
    pub first_failed_at: Option<OffsetDateTime>,
    /// When the next attempt is due, if one is.
    pub next_attempt_at: Option<OffsetDateTime>,
}

/// What the dispatcher does with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Make the attempt.
    Attempt,
    /// The ledger does not expect this attempt, as with a duplicate. Acknowledge and count it, send nothing.
    Stale,
    /// The ledger expects this attempt later. Publish the same job once more, due then.
    Early(OffsetDateTime),
    /// This attempt is recorded as failed, but its retry may not have been published. Publish the retry, due then.
    PublishRetry(OffsetDateTime),
}

impl Progress {
    /// Before any attempt.
    pub const NEW: Self =
        Self { state: DeliveryState::Pending, attempts: 0, run_base: 0, first_failed_at: None, next_attempt_at: None };

    /// The number of the next attempt within this run of the schedule, from 1.
    pub const fn next_of_run(&self) -> u16 {
        self.attempts.saturating_sub(self.run_base) + 1
    }

    /// Returns what becomes of `job` at `now`. A `redelivered` job was delivered already and not acknowledged. Its consumer
    /// may have died between recording the outcome and publishing the retry.
    pub fn judge(&self, job: Job, redelivered: Redelivered, now: OffsetDateTime, schedule: &RetrySchedule) -> Verdict {
        if !self.state.is_waiting() {
            return Verdict::Stale;
        }
        let is_next = job.attempt == self.attempts + 1;
        match self.next_attempt_at {
            Some(due) if is_next && due > now + schedule.early_tolerance() => Verdict::Early(due),
            _ if is_next => Verdict::Attempt,
            due if job.attempt > 0 && job.attempt == self.attempts && redelivered == Redelivered::Yes => {
                Verdict::PublishRetry(due.unwrap_or(now))
            }
            _ => Verdict::Stale,
        }
    }

    /// The progress after an attempt that ran from `started_at` to `finished_at`.
    pub fn after_attempt(
        &self,
        class: OutcomeClass,
        started_at: OffsetDateTime,
        finished_at: OffsetDateTime,
        schedule: &RetrySchedule,
    ) -> Self {
        let attempts = self.attempts + 1;
        if class.is_success() {
            return Self { state: DeliveryState::Succeeded, attempts, next_attempt_at: None, ..*self };
        }
        let first_failed_at = self.first_failed_at.unwrap_or(finished_at);
        let next_attempt_at = schedule.next_due(attempts - self.run_base, first_failed_at, started_at);
        let state = if next_attempt_at.is_some() { DeliveryState::Retrying } else { DeliveryState::Dropped };
        Self { state, attempts, first_failed_at: Some(first_failed_at), next_attempt_at, ..*self }
    }
}

/// What the ledger has of an attempt that was to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The ledger has this very attempt, from this call or from an earlier one whose answer was lost.
    Taken {
        /// The delivery's state.
        state: DeliveryState,
        /// When the next attempt is due. `None` when there is none, or it is due at once.
        next_attempt_at: Option<OffsetDateTime>,
    },
    /// The ledger did not expect this attempt (another process recorded one of its number), or has a later one.
    Superseded(Progress),
    /// The ledger has no such delivery.
    Unknown,
}

impl Record {
    /// The record of an attempt that the row took, which is `row` now.
    #[must_use]
    pub const fn taken(row: &Progress) -> Self {
        Self::Taken { state: row.state, next_attempt_at: row.next_attempt_at }
    }

    /// When the retry is due that the recorded `job` has to publish, if it has to. If the ledger took this attempt, it does as
    /// long as the delivery waits: it may have been cancelled or resent meanwhile. If another dispatcher recorded the
    /// attempt, that one publishes the retry. If this message was delivered before, this job publishes it as well: the
    /// other dispatcher may have lost its connection, and then publishes nothing.
    #[must_use]
    pub fn retry(
        &self,
        job: Job,
        redelivered: Redelivered,
        now: OffsetDateTime,
        schedule: &RetrySchedule,
    ) -> Option<OffsetDateTime> {
        match self {
            Self::Taken { state, next_attempt_at } => state.is_waiting().then(|| next_attempt_at.unwrap_or(now)),
            Self::Superseded(progress) => match progress.judge(job, redelivered, now, schedule) {
                Verdict::PublishRetry(due) => Some(due),
                _ => None,
            },
            Self::Unknown => None,
        }
    }
}

/// The fact that a message was delivered before, or not, also as the message that it was moved from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivered {
    /// Handed out already, and not acknowledged.
    Yes,
    /// Handed out for the first time.
    No,
}

impl From<bool> for Redelivered {
    fn from(flag: bool) -> Self {
        if flag { Self::Yes } else { Self::No }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

    fn job(attempt: u16) -> Job {
        Job { delivery: uuid::Uuid::from_u128(1).into(), attempt }
    }

    fn judge(progress: &Progress, job: Job, redelivered: Redelivered, now: OffsetDateTime) -> Verdict {
        progress.judge(job, redelivered, now, &RetrySchedule::default())
    }

    #[test]
    fn seven_failures_drop_a_delivery_and_a_success_ends_it_at_any_time() {
        let schedule = RetrySchedule::default();
        let mut progress = Progress::NEW;
        for attempt in 1..=6 {
            let succeeded = progress.after_attempt(OutcomeClass::Success, NOW, NOW, &schedule);
            assert_eq!((succeeded.state, succeeded.attempts), (DeliveryState::Succeeded, attempt));
            progress = progress.after_attempt(OutcomeClass::Status, NOW, NOW, &schedule);
            assert_eq!((progress.state, progress.attempts), (DeliveryState::Retrying, attempt));
            assert_eq!(progress.first_failed_at, Some(NOW));
        }
        progress = progress.after_attempt(OutcomeClass::Timeout, NOW, NOW, &schedule);
        assert_eq!((progress.state, progress.attempts, progress.next_attempt_at), (DeliveryState::Dropped, 7, None));
    }

    #[test]
    fn only_the_attempt_that_the_ledger_expects_is_made() {
        let due = NOW - Duration::from_secs(1);
        let progress = Progress {
            state: DeliveryState::Retrying,
            attempts: 2,
            run_base: 0,
            first_failed_at: Some(NOW),
            next_attempt_at: Some(due),
        };
        assert_eq!(judge(&progress, job(3), Redelivered::No, NOW), Verdict::Attempt);
        assert_eq!(judge(&progress, job(3), Redelivered::Yes, NOW), Verdict::Attempt);
        assert_eq!(judge(&progress, job(1), Redelivered::Yes, NOW), Verdict::Stale);
        assert_eq!(judge(&progress, job(2), Redelivered::No, NOW), Verdict::Stale);
        assert_eq!(judge(&progress, job(2), Redelivered::Yes, NOW), Verdict::PublishRetry(due));
        assert_eq!(judge(&progress, job(4), Redelivered::No, NOW), Verdict::Stale);
        assert_eq!(judge(&Progress::NEW, job(1), Redelivered::No, NOW), Verdict::Attempt);
        assert_eq!(judge(&Progress::NEW, job(0), Redelivered::Yes, NOW), Verdict::Stale);
        for state in [DeliveryState::Succeeded, DeliveryState::Dropped, DeliveryState::Cancelled] {
            assert_eq!(judge(&Progress { state, ..progress }, job(3), Redelivered::No, NOW), Verdict::Stale);
        }
    }

    #[test]
    fn a_job_that_comes_before_its_time_is_early() {
        let due = NOW + Duration::from_secs(9);
        let progress = Progress {
            state: DeliveryState::Retrying,
            attempts: 2,
            run_base: 0,
            first_failed_at: Some(NOW),
            next_attempt_at: Some(due),
        };
        assert_eq!(judge(&progress, job(3), Redelivered::No, NOW), Verdict::Early(due));
        assert_eq!(judge(&progress, job(3), Redelivered::No, due - Duration::from_millis(251)), Verdict::Early(due));
        assert_eq!(judge(&progress, job(3), Redelivered::No, due - Duration::from_millis(250)), Verdict::Attempt);
        let quick = "200ms,500ms".parse().unwrap();
        let early = due - Duration::from_millis(21);
        assert_eq!(progress.judge(job(3), Redelivered::No, early, &quick), Verdict::Early(due));
        assert_eq!(progress.judge(job(3), Redelivered::No, early + Duration::from_millis(1), &quick), Verdict::Attempt);
    }

    #[test]
    fn each_state_has_a_fixed_name_that_is_read_back() {
        let names = DeliveryState::ALL.map(DeliveryState::as_str);
        assert_eq!(names, ["pending", "retrying", "succeeded", "dropped", "cancelled", "skipped"]);
        assert_eq!(names.map(|name| name.parse().ok()), DeliveryState::ALL.map(Some));
    }

    #[test]
    fn a_failure_sets_when_the_next_attempt_is_due_and_a_success_clears_it() {
        let (schedule, ended) = (RetrySchedule::default(), NOW + Duration::from_secs(2));
        let failed = Progress::NEW.after_attempt(OutcomeClass::Timeout, NOW, ended, &schedule);
        assert_eq!(failed.first_failed_at, Some(ended), "the schedule begins at the end of the first attempt");
        assert_eq!(failed.next_attempt_at, Some(ended + Duration::from_secs(60)));
        let succeeded = failed.after_attempt(OutcomeClass::Success, NOW, ended, &schedule);
        assert_eq!((succeeded.state, succeeded.next_attempt_at), (DeliveryState::Succeeded, None));
    }

    #[test]
    fn a_resend_begins_the_schedule_anew_and_goes_on_counting_attempts() {
        let schedule: RetrySchedule = "1m,5m".parse().unwrap();
        let mut progress = Progress { attempts: 3, run_base: 3, ..Progress::NEW };
        for (attempts, minutes) in [(4, 1), (5, 5)] {
            progress = progress.after_attempt(OutcomeClass::Connect, NOW, NOW, &schedule);
            assert_eq!((progress.state, progress.attempts), (DeliveryState::Retrying, attempts));
            assert_eq!(progress.next_attempt_at, Some(NOW + Duration::from_secs(minutes * 60)));
        }
        progress = progress.after_attempt(OutcomeClass::Connect, NOW, NOW, &schedule);
        assert_eq!((progress.state, progress.attempts, progress.next_attempt_at), (DeliveryState::Dropped, 6, None));
    }

    #[test]
    fn a_recorded_job_publishes_the_retry_while_the_delivery_waits_and_another_ones_only_if_it_was_redelivered() {
        let schedule = RetrySchedule::default();
        let retry = |record: Record, redelivered| record.retry(job(2), redelivered, NOW, &schedule);
        let due = NOW + Duration::from_secs(60);
        for redelivered in [Redelivered::Yes, Redelivered::No] {
            for state in DeliveryState::ALL {
                let taken = |next_attempt_at| retry(Record::Taken { state, next_attempt_at }, redelivered);
                assert_eq!(taken(Some(due)), state.is_waiting().then_some(due));
                assert_eq!(taken(None), state.is_waiting().then_some(NOW));
            }
            assert_eq!(retry(Record::Unknown, redelivered), None);
        }
        let other =
            Progress { state: DeliveryState::Retrying, attempts: 2, next_attempt_at: Some(due), ..Progress::NEW };
        assert_eq!(retry(Record::Superseded(other), Redelivered::Yes), Some(due));
        assert_eq!(retry(Record::Superseded(other), Redelivered::No), None);
        assert_eq!(retry(Record::Superseded(Progress { attempts: 3, ..other }), Redelivered::Yes), None);
    }
}
