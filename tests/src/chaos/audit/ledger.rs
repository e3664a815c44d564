//! Checks the ledger against itself: states, counters, times of attempts.

use std::time::Duration;

use domain::DeliveryState;

use super::{Audit, Case, Kind};
use crate::chaos::evidence::{Attempt, Delivery};

/// How early a retry may be beyond the schedule's own tolerance, because times are rounded.
const ROUNDING_TOLERANCE: Duration = Duration::from_millis(10);

pub(super) fn check(case: &Case<'_>, audit: &mut Audit) {
    for delivery in &case.evidence.deliveries {
        let attempts = case.evidence.attempts.get(&delivery.id).map_or(&[][..], Vec::as_slice);
        audit.counts.attempts += attempts.len();
        audit.counts.asked_for += usize::from(case.is_meddled(delivery));
        if !delivery.is_test {
            audit.counts.stored += 1;
            match delivery.state {
                DeliveryState::Succeeded => audit.counts.delivered += 1,
                DeliveryState::Dropped => audit.counts.dropped += 1,
                DeliveryState::Cancelled => audit.counts.cancelled += 1,
                DeliveryState::Skipped => audit.counts.skipped += 1,
                DeliveryState::Pending | DeliveryState::Retrying => {}
            }
        }
        let what = || format!("delivery {} to \"{}\"", delivery.id, case.name(delivery.webhook));
        let numbers = attempts.iter().map(|attempt| attempt.number);
        if !numbers.eq(1..=delivery.attempts) {
            let rows = attempts.len();
            audit.found(Kind::WrongCount, format!("{}: {} by the counter, {rows} rows", what(), delivery.attempts));
        }
        if !case.is_meddled(delivery) {
            judge_state(case, delivery, attempts, audit);
            judge_times(case, delivery, attempts, audit);
        }
    }
    for id in case.evidence.attempts.keys().filter(|id| !case.deliveries.contains_key(id)) {
        audit.found(Kind::WrongCount, format!("attempts of {id}, which is no delivery"));
    }
}

fn judge_state(case: &Case<'_>, delivery: &Delivery, attempts: &[Attempt], audit: &mut Audit) {
    let what = format!("delivery {} to \"{}\"", delivery.id, case.name(delivery.webhook));
    let success = attempts.iter().position(|attempt| attempt.outcome.is_success());
    if let Some(success) = success
        && success + 1 < attempts.len()
    {
        audit.found(Kind::AfterSuccess, format!("{what}: attempt {} succeeded, {} made", success + 1, attempts.len()));
    }
    match delivery.state {
        DeliveryState::Succeeded if success.is_none() => {
            audit.found(Kind::FalseSuccess, format!("{what}: no attempt succeeded"));
        }
        DeliveryState::Dropped if success.is_some() || attempts.len() != case.evidence.schedule.steps().len() + 1 => {
            audit.found(Kind::EarlyDrop, format!("{what}: after {} attempts", attempts.len()));
        }
        _ => {}
    }
}

/// Attempt n+1 is due a fixed time after the first failure. If less than half of the shortest gap is left when attempt
/// n begins, attempt n+1 is due the shortest gap after that begin.
fn judge_times(case: &Case<'_>, delivery: &Delivery, attempts: &[Attempt], audit: &mut Audit) {
    let Some(first) = attempts.first() else { return };
    let steps = case.evidence.schedule.steps();
    let shortest = case.evidence.schedule.gaps()[0];
    for (pair, step) in attempts.windows(2).zip(steps) {
        let (on_time, before) = (first.finished_at() + *step, pair[0].started_at);
        let due = if on_time < before + shortest / 2 { before + shortest } else { on_time };
        let early = due - pair[1].started_at;
        if early > case.evidence.schedule.early_tolerance() + ROUNDING_TOLERANCE {
            let number = pair[1].number;
            let name = case.name(delivery.webhook);
            audit.found(
                Kind::EarlyRetry,
                format!("delivery {} to \"{name}\": attempt {number} was {early} early", delivery.id),
            );
        }
    }
}
