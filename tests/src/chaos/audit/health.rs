//! Computes each webhook's health again from its attempts, by the rule in `ledger::attempts`: failures count that ended
//! after the last success. Test deliveries do not count.

use std::collections::HashMap;

use super::{Audit, Case, Kind};
use crate::chaos::evidence::{Attempt, Health};

pub(super) fn check(case: &Case<'_>, audit: &mut Audit) {
    let mut attempts: HashMap<_, Vec<&Attempt>> = HashMap::new();
    for delivery in case.evidence.deliveries.iter().filter(|delivery| !delivery.is_test) {
        attempts
            .entry(delivery.webhook)
            .or_default()
            .extend(case.evidence.attempts.get(&delivery.id).into_iter().flatten());
    }
    for subscription in &case.evidence.subscriptions {
        let computed = of(attempts.get(&subscription.webhook).map_or(&[], Vec::as_slice));
        let what = format!("webhook {} \"{}\"", subscription.webhook, subscription.name);
        let Some(shown) = case.evidence.health.get(&subscription.webhook) else {
            audit.found(Kind::WrongHealth, format!("{what}: not in the ledger"));
            continue;
        };
        if !is_same(shown.ledger, computed) {
            audit.found(Kind::WrongHealth, format!("{what}: {:?}, by its attempts {computed:?}", shown.ledger));
        }
        if let Some(api) = shown.api
            && api != shown.ledger
        {
            audit.found(Kind::WrongHealthShown, format!("{what}: {api:?}, in the ledger {:?}", shown.ledger));
        }
    }
}

/// Allows a microsecond: a row has begin and duration cut to microseconds, the health the rounded end.
fn is_same(one: Health, other: Health) -> bool {
    let is_same_time = match (one.last_success_at, other.last_success_at) {
        (Some(one), Some(other)) => (one - other).abs() <= MICROSECOND,
        (one, other) => one == other,
    };
    is_same_time && one.failure_count == other.failure_count
}

const MICROSECOND: time::Duration = time::Duration::MICROSECOND;

pub(super) fn of(attempts: &[&Attempt]) -> Health {
    let succeeded = attempts.iter().filter(|attempt| attempt.outcome.is_success());
    let last_success_at = succeeded.map(|attempt| attempt.finished_at()).max();
    let counts = |attempt: &&&Attempt| {
        !attempt.outcome.is_success() && last_success_at.is_none_or(|last| attempt.finished_at() > last)
    };
    let failure_count = i64::try_from(attempts.iter().filter(counts).count()).unwrap_or(i64::MAX);
    Health { last_success_at, failure_count }
}
