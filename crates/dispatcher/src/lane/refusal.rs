//! Why jobs are held.

use std::time::Duration;

use domain::WebhookId;
use ledger::Waking;

/// Held jobs that are published again: of a slow webhook a single job, after an attempt's time; of other webhooks some
/// jobs, after a second.
pub(crate) const OF_SILENT_ONES: Waking = Waking { batch: 1, pause: Duration::from_secs(10) };
pub(crate) const OF_LATE_ONES: Waking = Waking { batch: 1, pause: Duration::from_secs(3) };
pub(crate) const OF_OTHERS: Waking = Waking { batch: 16, pause: Duration::from_secs(1) };

/// Why a job is held: its webhook is paused, or what it did not get. `Slots` and `Bodies` are what this dispatcher as a
/// whole has too little of: an alert asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Refusal {
    /// Its webhook is paused.
    Paused,
    /// Its webhook is slow, and what is for slow ones is taken.
    Slow,
    /// Its webhook is at its share.
    #[strum(serialize = "webhook_share")]
    Webhook,
    /// Its tenant is at its share.
    #[strum(serialize = "tenant_share")]
    Tenant,
    /// All slots of the main lane are taken.
    Slots,
    /// Too many long bodies of the main lane are in memory.
    #[strum(serialize = "body_bytes")]
    Bodies,
    /// It is a suspect, and it is another suspect's turn.
    #[strum(serialize = "suspect")]
    Suspects,
}

/// The webhook and the reason for which a job is held, and the way it is published again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) webhook: WebhookId,
    pub(crate) refusal: Refusal,
    /// `None`: when the webhook is activated.
    pub(crate) waking: Option<Waking>,
}

impl Hold {
    /// Returns whether the webhook does not answer.
    pub(crate) fn is_of_silent_webhook(&self) -> bool {
        self.waking == Some(OF_SILENT_ONES)
    }
}
