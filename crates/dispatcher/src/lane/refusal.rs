//! Why jobs are held.

use std::time::Duration;

use domain::WebhookId;
use ledger::ReleaseRate;

/// The rates at which held jobs are released: of a slow webhook a single job, after an attempt's time; of other webhooks some
/// jobs, after a second.
pub(crate) const SILENT_RELEASE: ReleaseRate = ReleaseRate { batch: 1, pause: Duration::from_secs(10) };
pub(crate) const LATE_RELEASE: ReleaseRate = ReleaseRate { batch: 1, pause: Duration::from_secs(3) };
pub(crate) const OTHER_RELEASE: ReleaseRate = ReleaseRate { batch: 16, pause: Duration::from_secs(1) };

/// A reason to hold a job: its webhook is paused, or what it did not get. `Slots` and `Bodies` are what this dispatcher as a
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

/// The webhook and the reason for which a job is held, and the rate at which it is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) webhook: WebhookId,
    pub(crate) refusal: Refusal,
    /// `None`: when the webhook is activated.
    pub(crate) release: Option<ReleaseRate>,
}

impl Hold {
    /// Returns whether the webhook does not answer.
    pub(crate) fn is_of_silent_webhook(&self) -> bool {
        self.release == Some(SILENT_RELEASE)
    }
}
