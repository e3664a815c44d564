//! Area `attempts`: the share of failing attempts.

use std::collections::BTreeMap;

use ledger::AttemptsSeen;
use time::{Duration, OffsetDateTime};

use super::{
    super::{
        finding::{Finding, grouped},
        observed::Observed,
    },
    judged,
};

/// Fewer attempts say nothing.
const MIN_ATTEMPTS: i64 = 20;

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(seen) = observed.database() else { return Vec::new() };
    judged("attempts.failing", (&seen.attempts, seen), |attempts| vec![failing(attempts, seen.now)])
}

/// This hour, with the last one while this hour has few attempts, against the day before.
fn failing(seen: &[AttemptsSeen], now: OffsetDateTime) -> Finding {
    let id = "attempts.failing";
    let hour = now.truncate_to_hour();
    let from = |begin| seen.iter().filter(move |one| one.hour >= begin);
    let is_young = from(hour).map(|one| one.attempts).sum::<i64>() < MIN_ATTEMPTS;
    let begin = if is_young { hour - Duration::HOUR } else { hour };
    let (all, failed) = counted(from(begin));
    let (all_before, failed_before) = counted(seen.iter().filter(|one| one.hour < begin));
    let since = format!("since {:02}:00 UTC", begin.hour());
    if all == 0 {
        return Finding::ok(id, format!("no attempt has ended {since}"));
    }
    let before = (all_before > 0).then(|| format!(" (the day before: {} %)", failed_before * 100 / all_before));
    let text = format!("{} of {} attempts failed {since}{}", grouped(failed), grouped(all), before.unwrap_or_default());
    let is_usual = failed_before * 2 >= all_before && all_before > 0;
    if all < MIN_ATTEMPTS || failed * 2 <= all || (is_usual && failed < all) {
        return Finding::ok(id, text);
    }
    let mut classes = BTreeMap::<&str, i64>::new();
    for one in from(begin).filter(|one| has_failed(one)) {
        *classes.entry(one.outcome.as_str()).or_default() += one.attempts;
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, attempts)| -attempts);
    let classes: Vec<_> =
        classes.iter().take(3).map(|(class, attempts)| format!("{class} {}", grouped(*attempts))).collect();
    let remedy = "webhookctl top names the webhooks. If all tenants' fail by connect, dns, timeout or tls, the way out of \
                  the dispatchers is broken (runbook: WebhooksNothingSucceeds)";
    Finding::warning(id, format!("{text}: {}", classes.join(", ")), remedy)
}

/// All attempts, and failed ones.
fn counted<'a>(seen: impl Iterator<Item = &'a AttemptsSeen>) -> (i64, i64) {
    seen.fold((0, 0), |(all, failed), one| {
        (all + one.attempts, failed + if has_failed(one) { one.attempts } else { 0 })
    })
}

fn has_failed(one: &AttemptsSeen) -> bool {
    !one.outcome.is_success()
}
