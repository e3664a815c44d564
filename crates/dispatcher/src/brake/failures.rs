//! The failures since a receiver last answered: whether no receiver may answer any more.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{TenantId, WebhookId};
use tokio::time::Instant;

use crate::fault::hastened;

/// The time for which attempts fail, at least; and the shorter time that is enough with [`MANY_FAILURES`] failures.
const LONG_OUTAGE: Duration = Duration::from_secs(60);
const SHORT_OUTAGE: Duration = Duration::from_secs(5);
const MANY_FAILURES: usize = 200;
const MIN_HOSTS: usize = 10;
const MIN_TENANTS: usize = 5;
/// The maximum of webhooks that are remembered. There are enough without the others.
const MAX_WEBHOOKS: usize = 10_000;

/// The webhooks that failed since the last answer to an attempt or a page.
pub(super) struct Failures {
    of: HashMap<WebhookId, Failing>,
    /// The last answer to an attempt.
    last_answer: Instant,
    /// The last answer to an attempt or a page.
    quiet_since: Instant,
}

struct Failing {
    tenant: TenantId,
    host: String,
    since: Instant,
    failures: usize,
}

impl Failures {
    /// The process starts `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { of: HashMap::new(), last_answer: now, quiet_since: now }
    }

    /// Notes that a receiver answered an attempt.
    pub(super) fn note_answer(&mut self, now: Instant) {
        self.last_answer = now;
        self.reset(now);
    }

    /// Counts anew: a page reached a receiver, or the brake is released.
    pub(super) fn reset(&mut self, now: Instant) {
        self.quiet_since = now;
        self.of.clear();
    }

    /// Notes that an attempt had no answer, or was not made as its webhook does not answer.
    pub(super) fn note_failure(&mut self, webhook: WebhookId, tenant: TenantId, host: &str, now: Instant) {
        if self.of.len() < MAX_WEBHOOKS || self.of.contains_key(&webhook) {
            let first = || Failing { tenant, host: host.to_owned(), since: now, failures: 0 };
            self.of.entry(webhook).or_insert_with(first).failures += 1;
        }
    }

    /// When a receiver last answered an attempt, or the process started.
    pub(super) const fn last_answer(&self) -> Instant {
        self.last_answer
    }

    /// Returns whether an attempt failed, and nobody has answered for a minute.
    pub(super) fn are_without_answer(&self, now: Instant) -> bool {
        !self.of.is_empty() && now.saturating_duration_since(self.quiet_since) >= hastened(LONG_OUTAGE)
    }

    /// The webhooks that failed.
    pub(super) fn webhooks(&self) -> Vec<WebhookId> {
        self.of.keys().copied().collect()
    }

    /// Returns whether these webhooks, which were well, are of enough hosts and tenants, and have failed for long enough.
    pub(super) fn are_enough(&self, well: &[WebhookId], now: Instant) -> bool {
        let failing = || well.iter().filter_map(|webhook| self.of.get(webhook));
        let tenants: HashSet<_> = failing().map(|one| one.tenant).collect();
        let hosts: HashSet<_> = failing().map(|one| &one.host).collect();
        let lasts_for = |time| failing().any(|one| now.saturating_duration_since(one.since) >= hastened(time));
        let are_many = || failing().map(|one| one.failures).sum::<usize>() >= MANY_FAILURES;
        hosts.len() >= MIN_HOSTS
            && tenants.len() >= MIN_TENANTS
            && (lasts_for(LONG_OUTAGE) || (are_many() && lasts_for(SHORT_OUTAGE)))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn webhook(number: u128) -> WebhookId {
        Uuid::from_u128(number).into()
    }

    /// Failures of `webhooks` webhooks, of as many `hosts` and `tenants`.
    fn failures(now: Instant, webhooks: u128, hosts: u128, tenants: u128) -> Failures {
        let mut failures = Failures::new(now);
        for number in 0..webhooks {
            let tenant = Uuid::from_u128(number % tenants).into();
            failures.note_failure(webhook(number), tenant, &format!("{}.example", number % hosts), now);
        }
        failures
    }

    #[test]
    fn failures_of_many_hosts_and_tenants_for_a_minute_are_enough() {
        for (webhooks, hosts, tenants, are) in
            [(10, 10, 5, true), (20, 9, 5, false), (20, 20, 4, false), (200, 1, 200, false), (200, 200, 1, false)]
        {
            let now = Instant::now();
            let failures = failures(now, webhooks, hosts, tenants);
            let are_enough = |at| failures.are_enough(&failures.webhooks(), at);
            assert_eq!(are_enough(now + LONG_OUTAGE), are, "{webhooks} {hosts} {tenants}");
            let nearly = now + LONG_OUTAGE - Duration::from_millis(1);
            assert!(webhooks >= 200 || !are_enough(nearly), "less than a minute");
        }
    }

    #[test]
    fn two_hundred_failures_are_enough_after_five_seconds() {
        for (failing, hosts, tenants, are) in
            [(199, 10, 5, false), (200, 10, 5, true), (2_000, 9, 5, false), (2_000, 10, 4, false)]
        {
            let now = Instant::now();
            let mut failures = Failures::new(now);
            for number in 0..failing {
                let (webhook, tenant) = (webhook(number % hosts), Uuid::from_u128(number % tenants).into());
                failures.note_failure(webhook, tenant, &format!("{}.example", number % hosts), now);
            }
            let are_enough = |at| failures.are_enough(&failures.webhooks(), at);
            assert_eq!(are_enough(now + SHORT_OUTAGE), are, "{failing} {hosts} {tenants}");
            assert!(!are_enough(now + SHORT_OUTAGE - Duration::from_millis(1)), "less than five seconds");
        }
    }

    #[test]
    fn any_answer_ends_them_and_one_to_a_page_is_none_to_an_attempt() {
        let now = Instant::now();
        let (later, nearly) = (now + LONG_OUTAGE, now + 2 * LONG_OUTAGE - Duration::from_millis(1));
        for end in [Failures::note_answer, Failures::reset] {
            let mut failures = failures(now, 100, 100, 100);
            assert!(failures.are_without_answer(later));
            end(&mut failures, later);
            assert!(failures.webhooks().is_empty() && !failures.are_without_answer(nearly));
            failures.note_failure(webhook(1), Uuid::nil().into(), "one.example", later);
            assert!(!failures.are_without_answer(nearly));
            assert!(failures.are_without_answer(now + 2 * LONG_OUTAGE));
        }
        let mut failures = failures(now, 100, 100, 100);
        failures.reset(later);
        assert_eq!(failures.last_answer(), now, "whoever was well then counts as long as the outage lasts");
        failures.note_answer(later);
        assert_eq!(failures.last_answer(), later);
    }

    #[test]
    fn a_blip_after_a_long_silence_is_not_enough_even_if_a_dead_receiver_failed_before() {
        let now = Instant::now();
        let mut failures = Failures::new(now);
        failures.note_failure(webhook(99), Uuid::nil().into(), "dead.example", now);
        let night = now + 100 * LONG_OUTAGE;
        for number in 0..20 {
            failures.note_failure(webhook(number), Uuid::from_u128(number).into(), &number.to_string(), night);
        }
        let well: Vec<_> = (0..20).map(webhook).collect();
        assert!(failures.are_without_answer(night));
        assert!(!failures.are_enough(&well, night + Duration::from_secs(5)));
        assert!(failures.are_enough(&well, night + LONG_OUTAGE));
    }

    #[test]
    fn webhooks_that_were_failing_already_do_not_count() {
        let now = Instant::now();
        let failures = failures(now, 20, 20, 20);
        let well = |number: u128| (0..number).map(webhook).collect::<Vec<_>>();
        assert!(failures.are_enough(&well(10), now + LONG_OUTAGE));
        assert!(!failures.are_enough(&well(9), now + LONG_OUTAGE));
    }

    #[test]
    fn the_memory_is_bounded() {
        let failures = failures(Instant::now(), 2 * MAX_WEBHOOKS as u128, 100, 100);
        assert_eq!(failures.of.len(), MAX_WEBHOOKS);
    }
}
