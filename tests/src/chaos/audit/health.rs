//! Computes each webhook's health again from its attempts (specification, section 2.3): failures count that were recorded
//! after the last success. Test deliveries do not count.

use std::{collections::HashMap, ops::RangeInclusive};

use time::OffsetDateTime;

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
        let computed = Computed::of(attempts.get(&subscription.webhook).map_or(&[], Vec::as_slice));
        let what = format!("webhook {} \"{}\"", subscription.webhook, subscription.name);
        let Some(shown) = case.evidence.health.get(&subscription.webhook) else {
            audit.found(Kind::WrongHealth, format!("{what}: not in the ledger"));
            continue;
        };
        if !computed.allows(shown.ledger) {
            audit.found(Kind::WrongHealth, format!("{what}: {:?}, by its attempts {computed:?}", shown.ledger));
        }
        if let Some(api) = shown.api
            && api != shown.ledger
        {
            audit.found(Kind::WrongHealthShown, format!("{what}: {api:?}, in the ledger {:?}", shown.ledger));
        }
    }
}

/// Health that a webhook may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Computed {
    pub(super) last_success_at: Option<OffsetDateTime>,
    pub(super) failures: RangeInclusive<i64>,
}

/// A row has begin and duration cut to microseconds, the health the rounded end.
const MICROSECOND: time::Duration = time::Duration::MICROSECOND;
/// Transactions whose ids are this near may have overlapped, and have recorded in either order.
const NEAR_TRANSACTIONS: i64 = 64;

impl Computed {
    pub(super) fn of(attempts: &[&Attempt]) -> Self {
        let succeeded = || attempts.iter().filter(|attempt| attempt.outcome.is_success());
        let last = succeeded().map(|attempt| attempt.transaction).max();
        let failures = |after: Option<i64>| {
            let failed = attempts.iter().filter(|attempt| !attempt.outcome.is_success());
            let counted = failed.filter(|attempt| after.is_none_or(|after| attempt.transaction > after)).count();
            i64::try_from(counted).unwrap_or(i64::MAX)
        };
        Self {
            last_success_at: succeeded().map(|attempt| attempt.finished_at()).max(),
            failures: failures(last.map(|last| last + NEAR_TRANSACTIONS))
                ..=failures(last.map(|last| last - NEAR_TRANSACTIONS)),
        }
    }

    fn allows(&self, shown: Health) -> bool {
        let is_same_time = match (self.last_success_at, shown.last_success_at) {
            (Some(one), Some(other)) => (one - other).abs() <= MICROSECOND,
            (one, other) => one == other,
        };
        is_same_time && self.failures.contains(&shown.failure_count)
    }
}
