//! The state that all workers share.

use std::time::Duration;

use domain::AddressPolicy;
use ledger::{Ledger, RetentionTimes, SecretKeys, WebhookLimits};
use service_kit::{Settings, settings::Limits};
use tokio::sync::watch;

use crate::outbox::Wakes;

/// How many deleted webhooks are kept for their logs, for each one that a tenant may have. The limit ends a loop of
/// registrations and deletions.
const DELETED_PER_WEBHOOK: u32 = 10;

/// The state.
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    /// For searches of bodies.
    pub(crate) searches: Ledger,
    pub(crate) wakes: Wakes,
    pub(crate) keys: SecretKeys,
    pub(crate) rules: Rules,
    /// The largest body, in bytes.
    pub(crate) body_limit: usize,
    /// How many webhooks a tenant may have.
    pub(crate) most: WebhookLimits,
    /// How long history is kept.
    pub(crate) kept: RetentionTimes,
    /// How long an attempt may take.
    pub(crate) attempt_timeout: Duration,
    pub(crate) console: service_kit::settings::Console,
    /// Why deliveries wait at present.
    pub(crate) brake: watch::Receiver<Option<console::BrakeCause>>,
}

/// The configurable rules for the fields of a body.
pub(crate) struct Rules {
    pub(crate) name_chars: usize,
    pub(crate) url_chars: usize,
    pub(crate) address_policy: AddressPolicy,
}

impl State {
    pub(crate) fn new(
        settings: &Settings,
        [ledger, searches]: [Ledger; 2],
        wakes: Wakes,
        keys: SecretKeys,
        brake: watch::Receiver<Option<console::BrakeCause>>,
    ) -> Self {
        let limits = &settings.limits;
        let address_policy = settings.egress.address_policy();
        Self {
            ledger,
            searches,
            wakes,
            keys,
            rules: Rules { name_chars: limits.name_chars, url_chars: limits.url_chars, address_policy },
            body_limit: limits.request_body_bytes,
            most: most(limits),
            kept: settings.retention.kept(),
            attempt_timeout: settings.egress.timeout,
            console: settings.console.clone(),
            brake,
        }
    }

    /// How long history is kept, in days.
    pub(crate) const fn kept_days(&self) -> u64 {
        self.kept.log.as_secs() / 86_400
    }
}

/// The maximum of webhooks of a tenant, and of its deleted ones.
pub(crate) fn most(limits: &Limits) -> WebhookLimits {
    let webhooks = limits.webhooks_per_tenant.try_into().unwrap_or(u32::MAX);
    WebhookLimits { webhooks, deleted: webhooks.saturating_mul(DELETED_PER_WEBHOOK) }
}
