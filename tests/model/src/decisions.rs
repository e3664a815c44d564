//! The decisions that SQL makes about rows of the ledger, as functions. The model decides by them, and
//! `tests/tests/service/decisions.rs` compares each statement with its function. No service calls them.

use domain::{DeliveryState, Progress, Record, WebhookState};
use time::OffsetDateTime;

/// The places of a delivery's job, as the ledger knows them. A job that is in one of them comes from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobPlaces {
    /// The job is in the outbox.
    pub is_promised: bool,
    /// The job is held.
    pub is_held: bool,
    /// The job was published since the broker lost its disk, or again a short time ago.
    pub is_published: bool,
}

/// The reason to hold a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// The webhook was paused when the job was checked.
    Paused,
    /// The webhook's receiver is slow: the job found no free attempt.
    Slow,
}

/// The decisions about a delivery's row.
pub trait RowDecisions: Sized {
    /// The row after an attempt was recorded of which [`Progress::after_attempt`] says `made`, or `None` if the row does
    /// not expect the attempt. A delivery that was cancelled meanwhile stays cancelled, unless the attempt succeeded. One
    /// that was resent meanwhile waits for its new run, which begins after this attempt.
    #[must_use]
    fn recorded(&self, made: &Self) -> Option<Self>;

    /// The record of attempt number `attempt` that the row did not expect. `is_own`: the ledger has this very attempt, of an
    /// earlier call.
    #[must_use]
    fn found(&self, attempt: u16, is_own: bool) -> Record;

    /// The row after a request to send the delivery again, or `None` if a run has begun that was not attempted yet.
    #[must_use]
    fn resent(&self, now: OffsetDateTime) -> Option<Self>;

    /// The row after a cancellation, or `None` if the delivery does not wait.
    #[must_use]
    fn cancelled(&self) -> Option<Self>;

    /// The row after its job was published again, due now unless it is due later, or `None` if the delivery does not wait.
    #[must_use]
    fn due_now(&self, now: OffsetDateTime) -> Option<Self>;

    /// The row after an attempt was postponed that would have been the one after `attempts`, or `None` if the delivery does
    /// not wait for it.
    #[must_use]
    fn postponed(&self, attempts: u16, until: OffsetDateTime) -> Option<Self>;

    /// Returns whether the delivery was never attempted and waits. If its event comes again, its job may be nowhere: an ingest
    /// may have died before it published the job.
    #[must_use]
    fn is_untried(&self) -> bool;

    /// Returns whether the delivery needs a message on the queues: it waits, and its job is in none of these places.
    #[must_use]
    fn needs_message(&self, places: JobPlaces) -> bool;
}

/// The decisions about a webhook's row.
pub trait WebhookDecisions {
    /// Returns the state of the delivery that a new event makes for the webhook, or `None` if the event makes none.
    #[must_use]
    fn of_new_event(self) -> Option<DeliveryState>;

    /// Returns whether a job of the webhook is held for this reason. If not, the job is judged again: the webhook may have
    /// been activated or deleted since it was judged.
    #[must_use]
    fn holds(self, reason: HoldReason) -> bool;
}

impl RowDecisions for Progress {
    fn recorded(&self, made: &Self) -> Option<Self> {
        if self.attempts + 1 != made.attempts {
            return None;
        }
        let (is_same_run, is_cancelled) = (self.run_base == made.run_base, self.state == DeliveryState::Cancelled);
        let takes_state = is_same_run && (!is_cancelled || made.state == DeliveryState::Succeeded);
        let takes_due = is_same_run && !is_cancelled;
        Some(Self {
            attempts: made.attempts,
            state: if takes_state { made.state } else { self.state },
            run_base: if is_same_run { self.run_base } else { made.attempts },
            first_failed_at: if is_same_run { made.first_failed_at } else { self.first_failed_at },
            next_attempt_at: if takes_due { made.next_attempt_at } else { self.next_attempt_at },
        })
    }

    fn found(&self, attempt: u16, is_own: bool) -> Record {
        if is_own && self.attempts == attempt { Record::taken(self) } else { Record::Superseded(*self) }
    }

    fn resent(&self, now: OffsetDateTime) -> Option<Self> {
        let fresh = Self { attempts: self.attempts, run_base: self.attempts, next_attempt_at: Some(now), ..Self::NEW };
        (self.state != DeliveryState::Pending).then_some(fresh)
    }

    fn cancelled(&self) -> Option<Self> {
        let cancelled = Self { state: DeliveryState::Cancelled, next_attempt_at: None, ..*self };
        self.state.is_waiting().then_some(cancelled)
    }

    fn due_now(&self, now: OffsetDateTime) -> Option<Self> {
        let next_attempt_at = Some(self.next_attempt_at.map_or(now, |due| due.max(now)));
        self.state.is_waiting().then_some(Self { next_attempt_at, ..*self })
    }

    fn postponed(&self, attempts: u16, until: OffsetDateTime) -> Option<Self> {
        let is_next = self.state.is_waiting() && self.attempts == attempts;
        is_next.then_some(Self { next_attempt_at: Some(until), ..*self })
    }

    fn is_untried(&self) -> bool {
        self.state == DeliveryState::Pending && self.attempts == 0
    }

    fn needs_message(&self, places: JobPlaces) -> bool {
        self.state.is_waiting() && !places.is_promised && !places.is_held && !places.is_published
    }
}

impl WebhookDecisions for WebhookState {
    fn of_new_event(self) -> Option<DeliveryState> {
        match self {
            Self::Active => Some(DeliveryState::Pending),
            Self::Paused => Some(DeliveryState::Skipped),
            Self::Deleted => None,
        }
    }

    fn holds(self, reason: HoldReason) -> bool {
        match self {
            Self::Active => reason == HoldReason::Slow,
            Self::Paused => true,
            Self::Deleted => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{OutcomeClass, RetrySchedule};
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

    #[test]
    fn a_record_changes_only_the_row_that_expects_it_and_keeps_what_happened_meanwhile() {
        let schedule = RetrySchedule::default();
        let row = Progress { attempts: 2, state: DeliveryState::Retrying, first_failed_at: Some(NOW), ..Progress::NEW };
        let failed = row.after_attempt(OutcomeClass::Status, NOW, NOW, &schedule);
        let succeeded = row.after_attempt(OutcomeClass::Success, NOW, NOW, &schedule);
        assert_eq!((row.recorded(&failed), row.recorded(&succeeded)), (Some(failed), Some(succeeded)));
        for attempts in [0, 1, 3, 4] {
            assert_eq!(Progress { attempts, ..row }.recorded(&failed), None, "{attempts}");
        }
        let cancelled = row.cancelled().unwrap();
        let (state, next_attempt_at) = (DeliveryState::Cancelled, None);
        assert_eq!(cancelled.recorded(&failed), Some(Progress { state, next_attempt_at, ..failed }));
        assert_eq!(cancelled.recorded(&succeeded), Some(succeeded));
        let resent = row.resent(NOW).unwrap();
        for made in [failed, succeeded] {
            assert_eq!(resent.recorded(&made), Some(Progress { attempts: 3, run_base: 3, ..resent }));
        }
    }

    #[test]
    fn a_resend_begins_a_run_that_is_due_now_unless_one_has_begun() {
        for state in DeliveryState::ALL {
            let row = Progress { state, attempts: 3, first_failed_at: Some(NOW), ..Progress::NEW };
            let fresh = Progress { attempts: 3, run_base: 3, next_attempt_at: Some(NOW), ..Progress::NEW };
            assert_eq!(row.resent(NOW), (state != DeliveryState::Pending).then_some(fresh), "{state}");
        }
    }

    #[test]
    fn an_attempt_that_is_recorded_already_is_taken_if_it_is_the_latest_one_and_the_callers_own() {
        let row = Progress { state: DeliveryState::Retrying, attempts: 2, next_attempt_at: Some(NOW), ..Progress::NEW };
        let taken = Record::Taken { state: DeliveryState::Retrying, next_attempt_at: Some(NOW) };
        assert_eq!(row.found(2, true), taken);
        for (attempt, is_own) in [(2, false), (1, true), (1, false)] {
            assert_eq!(row.found(attempt, is_own), Record::Superseded(row), "{attempt} {is_own}");
        }
    }

    #[test]
    fn a_delivery_is_untried_while_it_waits_for_its_very_first_attempt() {
        for (state, attempts) in DeliveryState::ALL.into_iter().flat_map(|state| [(state, 0), (state, 1)]) {
            let is_untried = Progress { state, attempts, ..Progress::NEW }.is_untried();
            assert_eq!(is_untried, (state, attempts) == (DeliveryState::Pending, 0), "{state} after {attempts}");
        }
    }

    #[test]
    fn only_what_waits_is_cancelled_made_due_postponed_or_without_a_message() {
        let later = NOW + Duration::from_secs(9);
        let nowhere = JobPlaces::default();
        for state in DeliveryState::ALL {
            let row = Progress { state, attempts: 3, ..Progress::NEW };
            let waits = state.is_waiting();
            let due_at = |at| Progress { next_attempt_at: Some(at), ..row };
            let cancelled = Progress { state: DeliveryState::Cancelled, next_attempt_at: None, ..row };
            assert_eq!(due_at(NOW).cancelled(), waits.then_some(cancelled));
            for (row, due) in [(row, NOW), (due_at(NOW - Duration::from_secs(9)), NOW), (due_at(later), later)] {
                assert_eq!(row.due_now(NOW), waits.then_some(due_at(due)));
            }
            assert_eq!(row.postponed(3, later), waits.then_some(due_at(later)));
            assert_eq!(row.postponed(2, later), None, "it was attempted meanwhile");
            assert_eq!(row.needs_message(nowhere), waits);
            assert!(!row.needs_message(JobPlaces { is_promised: true, ..nowhere }));
            assert!(!row.needs_message(JobPlaces { is_held: true, ..nowhere }));
            assert!(!row.needs_message(JobPlaces { is_published: true, ..nowhere }));
        }
    }

    #[test]
    fn an_event_makes_a_delivery_that_waits_or_is_skipped_or_none() {
        let expected = [Some(DeliveryState::Pending), Some(DeliveryState::Skipped), None];
        assert_eq!(WebhookState::ALL.map(WebhookState::of_new_event), expected);
    }

    #[test]
    fn a_job_is_held_while_its_webhook_is_paused_or_if_it_found_no_free_attempt() {
        let holds = |reason| WebhookState::ALL.map(|state| state.holds(reason));
        assert_eq!(holds(HoldReason::Paused), [false, true, false]);
        assert_eq!(holds(HoldReason::Slow), [true, true, false]);
    }
}
