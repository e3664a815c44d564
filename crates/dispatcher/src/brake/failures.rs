//! The failures since a receiver last answered: whether they may be our own.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{TenantId, WebhookId};
use tokio::time::Instant;

/// The time for which no receiver has answered, at least.
pub(super) const AT_LEAST: Duration = Duration::from_secs(60);
/// A webhook whose last failure is older does not count.
const RECENT: Duration = Duration::from_secs(15 * 60);
const ATTEMPTS: u32 = 20;
const HOSTS: usize = 10;
const TENANTS: usize = 5;
/// The maximum of webhooks that are remembered. There are enough without the others.
const MOST: usize = 10_000;

/// The failures since the last answer, by webhook.
#[derive(Default)]
pub(super) struct Failures {
    of: HashMap<WebhookId, Failing>,
    last_answer: Option<Instant>,
}

struct Failing {
    tenant: TenantId,
    host: String,
    attempts: u32,
    first: Instant,
    last: Instant,
}

impl Failures {
    /// A receiver answered something.
    pub(super) fn answered(&mut self, now: Instant) {
        self.last_answer = Some(now);
        self.clear();
    }

    /// Forgets the failures, as if a receiver had answered.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    /// An attempt failed without a word of the receiver.
    pub(super) fn failed(&mut self, webhook: WebhookId, tenant: TenantId, host: &str, now: Instant) {
        let is_full = self.of.len() >= MOST;
        match self.of.get_mut(&webhook) {
            Some(failing) => (failing.attempts, failing.last) = (failing.attempts + 1, now),
            None if is_full => {}
            None => {
                self.of.insert(webhook, Failing { tenant, host: host.to_owned(), attempts: 1, first: now, last: now });
            }
        }
    }

    /// When a receiver last answered.
    pub(super) const fn last_answer(&self) -> Option<Instant> {
        self.last_answer
    }

    /// The webhooks that failed, if they may show that no receiver can be reached.
    pub(super) fn suspicious(&mut self, now: Instant) -> Option<Vec<WebhookId>> {
        self.of.retain(|_, failing| now.saturating_duration_since(failing.last) <= RECENT);
        self.are_enough(self.of.keys(), now).then(|| self.of.keys().copied().collect())
    }

    /// Returns whether there is any failure since the last answer.
    pub(super) fn are_there(&self) -> bool {
        !self.of.is_empty()
    }

    /// Returns whether the failures of these webhooks are many, of many hosts and tenants, and have lasted.
    pub(super) fn are_enough<'w>(&self, webhooks: impl IntoIterator<Item = &'w WebhookId>, now: Instant) -> bool {
        let (mut attempts, mut hosts, mut tenants) = (0_u32, HashSet::new(), HashSet::new());
        let mut lasted = Duration::ZERO;
        for failing in webhooks.into_iter().filter_map(|webhook| self.of.get(webhook)) {
            attempts = attempts.saturating_add(failing.attempts);
            lasted = lasted.max(now.saturating_duration_since(failing.first));
            hosts.insert(&failing.host);
            tenants.insert(failing.tenant);
        }
        lasted >= AT_LEAST && attempts >= ATTEMPTS && hosts.len() >= HOSTS && tenants.len() >= TENANTS
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn webhook(number: u128) -> WebhookId {
        Uuid::from_u128(number).into()
    }

    /// Failures of `webhooks` webhooks, `each` times, of as many `hosts` and `tenants`.
    fn failures(now: Instant, webhooks: u128, each: u32, hosts: u128, tenants: u128) -> Failures {
        let mut failures = Failures::default();
        for number in 0..webhooks {
            for _ in 0..each {
                let tenant = Uuid::from_u128(number % tenants).into();
                failures.failed(webhook(number), tenant, &format!("{}.example", number % hosts), now);
            }
        }
        failures
    }

    #[test]
    fn many_failures_of_many_hosts_and_tenants_for_a_minute_are_suspicious() {
        let now = Instant::now();
        for (webhooks, each, hosts, tenants, are) in [
            (10, 2, 10, 5, true),
            (10, 1, 10, 5, false),
            (20, 9, 9, 5, false),
            (20, 9, 20, 4, false),
            (200, 50, 1, 200, false),
            (200, 50, 200, 1, false),
            (1, 1_000, 1, 1, false),
        ] {
            let mut failures = failures(now, webhooks, each, hosts, tenants);
            let found = failures.suspicious(now + MINUTE).map(|found| found.len() as u128);
            assert_eq!(found, are.then_some(webhooks), "{webhooks} {each} {hosts} {tenants}");
            assert_eq!(failures.suspicious(now + MINUTE - Duration::from_millis(1)), None, "less than a minute");
        }
    }

    #[test]
    fn any_answer_ends_them() {
        let now = Instant::now();
        let mut failures = failures(now, 100, 100, 100, 100);
        failures.answered(now + MINUTE);
        assert_eq!(failures.suspicious(now + 2 * MINUTE), None);
        failures.failed(webhook(1), Uuid::nil().into(), "one.example", now + 2 * MINUTE);
        assert_eq!(failures.suspicious(now + 5 * MINUTE), None, "they are counted from the answer on");
    }

    #[test]
    fn those_who_were_failing_already_do_not_count() {
        let now = Instant::now();
        let failures = failures(now, 20, 5, 20, 20);
        let well = |number: u128| (0..number).map(webhook).collect::<Vec<_>>();
        assert!(failures.are_enough(&well(10), now + MINUTE));
        assert!(!failures.are_enough(&well(9), now + MINUTE));
    }

    #[test]
    fn the_minute_is_one_of_those_who_count() {
        let now = Instant::now();
        let mut failures = Failures::default();
        failures.failed(webhook(99), Uuid::nil().into(), "dead.example", now);
        for number in 0..20 {
            let tenant = Uuid::from_u128(number).into();
            failures.failed(webhook(number), tenant, &number.to_string(), now + MINUTE);
        }
        let well: Vec<_> = (0..20).map(webhook).collect();
        assert!(failures.suspicious(now + MINUTE).is_some());
        assert!(!failures.are_enough(&well, now + MINUTE), "a blip of those who were well");
        assert!(failures.are_enough(&well, now + 2 * MINUTE));
    }

    #[test]
    fn one_attempt_in_eighteen_seconds_is_enough_within_a_quarter_of_an_hour() {
        let now = Instant::now();
        let mut failures = Failures::default();
        let mut found_after = None;
        for number in 0_u32..50 {
            let at = now + number * Duration::from_secs(18);
            let of = u128::from(number % 12);
            failures.failed(webhook(of), Uuid::from_u128(of % 6).into(), &of.to_string(), at);
            if failures.suspicious(at).is_some() {
                found_after.get_or_insert(number);
            }
        }
        assert_eq!(found_after, Some(19), "10 events a minute over three dispatchers");
    }

    #[test]
    fn old_failures_are_forgotten_and_the_next_ones_count_from_their_own_beginning() {
        let now = Instant::now();
        let mut failures = failures(now, 20, 5, 20, 20);
        let later = now + RECENT + MINUTE;
        assert_eq!(failures.suspicious(later), None);
        for number in 0..20 {
            failures.failed(webhook(number), Uuid::from_u128(number).into(), &number.to_string(), later);
            failures.failed(webhook(number), Uuid::from_u128(number).into(), &number.to_string(), later);
        }
        assert_eq!(failures.suspicious(later), None, "they have just begun");
        assert!(failures.suspicious(later + MINUTE).is_some());
    }

    #[test]
    fn the_memory_is_bounded() {
        let failures = failures(Instant::now(), 2 * MOST as u128, 1, 100, 100);
        assert_eq!(failures.of.len(), MOST);
    }
}
