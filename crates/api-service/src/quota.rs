//! How many webhooks a tenant may have.

use ledger::Most;
use service_kit::settings::Limits;

/// How many deleted webhooks are kept for their logs, for each one that a tenant may have. The limit ends a loop of
/// registrations and deletions.
const DELETED: u32 = 10;

pub(crate) fn of(limits: &Limits) -> Most {
    let webhooks = limits.webhooks_per_tenant.try_into().unwrap_or(u32::MAX);
    Most { webhooks, deleted: webhooks.saturating_mul(DELETED) }
}
