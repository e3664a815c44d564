//! Whether a webhook takes deliveries: what an event makes for it, and which jobs are held.

use crate::DeliveryState;

/// Whether a webhook takes deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookState {
    /// It takes them.
    Active,
    /// Its administrator paused it: jobs are held.
    Paused,
    /// It is deleted: deliveries are cancelled.
    Deleted,
}

/// The reason to hold a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// The webhook was paused when the job was judged.
    Paused,
    /// The webhook's receiver is slow: the job found no free attempt.
    Slow,
}

impl WebhookState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Active, Self::Paused, Self::Deleted];

    /// Returns the state of the delivery that a new event makes for the webhook, or `None` if the event makes none.
    #[must_use]
    pub const fn of_new_event(self) -> Option<DeliveryState> {
        match self {
            Self::Active => Some(DeliveryState::Pending),
            Self::Paused => Some(DeliveryState::Skipped),
            Self::Deleted => None,
        }
    }

    /// Returns whether a job of the webhook is held for this reason. If not, the job is judged again: the webhook may have been
    /// activated or deleted since it was judged.
    #[must_use]
    pub const fn holds(self, reason: HoldReason) -> bool {
        match self {
            Self::Active => matches!(reason, HoldReason::Slow),
            Self::Paused => true,
            Self::Deleted => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
