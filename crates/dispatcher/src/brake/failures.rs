//! The failures since a receiver last answered: whether they may be our own.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{TenantId, WebhookId};
use tokio::time::Instant;

/// The time for which no receiver has answered, and for which attempts have failed, at least.
const AT_LEAST: Duration = Duration::from_secs(60);
const HOSTS: usize = 10;
const TENANTS: usize = 5;
/// The maximum of webhooks that are remembered. There are enough without the others.
const MOST: usize = 10_000;

/// The tenants and hosts of the webhooks that failed since the last answer to an attempt or a probe, and when each failed
/// first.
pub(super) struct Failures {
    of: HashMap<WebhookId, (TenantId, String, Instant)>,
    /// The last answer to an attempt.
    last_answer: Instant,
    /// The last answer to an attempt or a probe.
    quiet_since: Instant,
}

impl Failures {
    /// The process starts `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { of: HashMap::new(), last_answer: now, quiet_since: now }
    }

    /// A receiver answered an attempt.
    pub(super) fn answered(&mut self, now: Instant) {
        self.last_answer = now;
        self.probed(now);
    }

    /// A probe reached a receiver.
    pub(super) fn probed(&mut self, now: Instant) {
        self.quiet_since = now;
        self.of.clear();
    }

    /// An attempt failed without a word of the receiver.
    pub(super) fn failed(&mut self, webhook: WebhookId, tenant: TenantId, host: &str, now: Instant) {
        if self.of.len() < MOST {
            self.of.entry(webhook).or_insert_with(|| (tenant, host.to_owned(), now));
        }
    }

    /// When a receiver last answered an attempt, or the process started.
    pub(super) const fn last_answer(&self) -> Instant {
        self.last_answer
    }

    /// Returns whether no receiver has answered for a while, and attempts have failed since.
    pub(super) fn are_without_answer(&self, now: Instant) -> bool {
        !self.of.is_empty() && now.saturating_duration_since(self.quiet_since) >= AT_LEAST
    }

    /// The webhooks that failed.
    pub(super) fn webhooks(&self) -> Vec<WebhookId> {
        self.of.keys().copied().collect()
    }

    /// Returns whether the failures of these webhooks are of many hosts and tenants, and have lasted.
    pub(super) fn are_enough(&self, webhooks: &[WebhookId], now: Instant) -> bool {
        let failed = || webhooks.iter().filter_map(|webhook| self.of.get(webhook));
        let tenants: HashSet<_> = failed().map(|(tenant, ..)| tenant).collect();
        let hosts: HashSet<_> = failed().map(|(_, host, _)| host).collect();
        let has_lasted = failed().any(|(.., first)| now.saturating_duration_since(*first) >= AT_LEAST);
        has_lasted && hosts.len() >= HOSTS && tenants.len() >= TENANTS
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
            failures.failed(webhook(number), tenant, &format!("{}.example", number % hosts), now);
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
            assert_eq!(are_enough(now + AT_LEAST), are, "{webhooks} {hosts} {tenants}");
            assert!(!are_enough(now + AT_LEAST - Duration::from_millis(1)), "less than a minute");
        }
    }

    #[test]
    fn any_answer_ends_them_and_one_to_a_probe_is_none_to_an_attempt() {
        let now = Instant::now();
        let (later, nearly) = (now + AT_LEAST, now + 2 * AT_LEAST - Duration::from_millis(1));
        for end in [Failures::answered, Failures::probed] {
            let mut failures = failures(now, 100, 100, 100);
            assert!(failures.are_without_answer(later));
            end(&mut failures, later);
            assert!(failures.webhooks().is_empty() && !failures.are_without_answer(nearly));
            failures.failed(webhook(1), Uuid::nil().into(), "one.example", later);
            assert!(!failures.are_without_answer(nearly));
            assert!(failures.are_without_answer(now + 2 * AT_LEAST));
        }
        let mut failures = failures(now, 100, 100, 100);
        failures.probed(later);
        assert_eq!(failures.last_answer(), now, "whoever was well then counts as long as the outage lasts");
        failures.answered(later);
        assert_eq!(failures.last_answer(), later);
    }

    #[test]
    fn a_blip_after_a_long_silence_is_not_enough_even_if_a_dead_receiver_failed_before() {
        let now = Instant::now();
        let mut failures = Failures::new(now);
        failures.failed(webhook(99), Uuid::nil().into(), "dead.example", now);
        let night = now + 100 * AT_LEAST;
        for number in 0..20 {
            failures.failed(webhook(number), Uuid::from_u128(number).into(), &number.to_string(), night);
        }
        let well: Vec<_> = (0..20).map(webhook).collect();
        assert!(failures.are_without_answer(night));
        assert!(!failures.are_enough(&well, night + Duration::from_secs(5)));
        assert!(failures.are_enough(&well, night + AT_LEAST));
    }

    #[test]
    fn those_who_were_failing_already_do_not_count() {
        let now = Instant::now();
        let failures = failures(now, 20, 20, 20);
        let well = |number: u128| (0..number).map(webhook).collect::<Vec<_>>();
        assert!(failures.are_enough(&well(10), now + AT_LEAST));
        assert!(!failures.are_enough(&well(9), now + AT_LEAST));
    }

    #[test]
    fn the_memory_is_bounded() {
        let failures = failures(Instant::now(), 2 * MOST as u128, 100, 100);
        assert_eq!(failures.of.len(), MOST);
    }
}
