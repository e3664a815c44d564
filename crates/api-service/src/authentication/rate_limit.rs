//! The rate limit of a tenant's requests (settings `api.rate_limit_per_minute` and `api.rate_limit_burst`), in this process
//! only. The console's refreshes have tokens of their own: an open page costs no script its requests.

use std::{num::NonZeroU32, time::Duration};

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use domain::TenantId;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::StateInformationMiddleware,
    state::keyed::DashMapStateStore,
};
use ledger::SessionHash;
use service_kit::settings;

/// Payers whose tokens are counted before full buckets are forgotten.
const PAYERS: usize = 10_000;

/// A tenant, with one of its sessions that is no administrator's.
pub(super) type Payer = (TenantId, Option<SessionHash>);
type Buckets = RateLimiter<Payer, DashMapStateStore<Payer>, DefaultClock, StateInformationMiddleware>;

/// A bucket of tokens for each payer, and another for its refreshes.
pub(super) struct RateLimit {
    quota: Quota,
    requests: Buckets,
    refreshes: Buckets,
    clock: DefaultClock,
}

/// The tokens that a client has left, for the headers of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    limit: u32,
    remaining: u32,
    /// When the bucket is full again.
    reset: Duration,
}

impl RateLimit {
    /// `None` when the limit per minute is 0, which limits nothing.
    pub(super) fn new(settings: &settings::Api) -> Option<Self> {
        let count = |number: usize| NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
        let quota = Quota::per_minute(count(settings.rate_limit_per_minute)?);
        let quota = quota.allow_burst(count(settings.rate_limit_burst).unwrap_or(NonZeroU32::MIN));
        let buckets = || RateLimiter::keyed(quota).with_middleware();
        Some(Self { quota, requests: buckets(), refreshes: buckets(), clock: DefaultClock::default() })
    }

    /// Takes a token. If there is none, the second value is the time until there is one.
    pub(super) fn take(&self, payer: &Payer, is_refresh: bool) -> (Allowance, Option<Duration>) {
        let buckets = if is_refresh { &self.refreshes } else { &self.requests };
        if buckets.len() > PAYERS {
            buckets.retain_recent();
        }
        let limit = self.quota.burst_size().get();
        let (remaining, wait) = match buckets.check_key(payer) {
            Ok(state) => (state.remaining_burst_capacity(), None),
            Err(not_until) => (0, Some(not_until.wait_time_from(self.clock.now()))),
        };
        let reset = self.quota.replenish_interval().saturating_mul(limit - remaining.min(limit));
        (Allowance { limit, remaining, reset }, wait)
    }
}

impl Allowance {
    pub(super) fn write(self, headers: &mut HeaderMap) {
        let reset = self.reset.as_secs() + u64::from(self.reset.subsec_nanos() > 0);
        for (name, value) in [
            ("ratelimit-limit", u64::from(self.limit)),
            ("ratelimit-remaining", u64::from(self.remaining)),
            ("ratelimit-reset", reset),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use service_kit::Settings;
    use uuid::Uuid;

    use super::*;

    fn limit(per_minute: &str, burst: &str) -> Option<RateLimit> {
        let env = [
            ("DATABASE__URL", "postgres://db"),
            ("BROKER__URL", "amqp://mq"),
            ("API__RATE_LIMIT_PER_MINUTE", per_minute),
            ("API__RATE_LIMIT_BURST", burst),
        ];
        let env: HashMap<_, _> = env.map(|(key, value)| (format!("WEBHOOKS__{key}"), value.to_owned())).into();
        RateLimit::new(&Settings::from_sources(None, env).unwrap().api)
    }

    fn payer(number: u128) -> Payer {
        (Uuid::from_u128(number).into(), None)
    }

    #[test]
    fn a_burst_passes_and_the_answer_says_what_is_left() {
        let limit = limit("6", "3").unwrap();
        let (one, other) = (payer(1), payer(2));
        let user = (one.0, Some(SessionHash::of("a user's")));
        for remaining in [2, 1, 0] {
            let (allowance, wait) = limit.take(&one, false);
            assert_eq!((allowance.limit, allowance.remaining, wait), (3, remaining, None));
            assert_eq!(allowance.reset, Duration::from_secs(10) * (3 - remaining));
        }
        let (allowance, wait) = limit.take(&one, false);
        assert_eq!(allowance.remaining, 0);
        assert!((Duration::from_secs(9)..=Duration::from_secs(10)).contains(&wait.unwrap()), "{wait:?}");
        assert_eq!(limit.take(&one, true).1, None, "refreshes have tokens of their own");
        assert_eq!(limit.take(&other, false).1, None, "and so has each tenant");
        assert_eq!(limit.take(&user, false).1, None, "and each session that is no administrator's");
    }

    #[test]
    fn zero_does_not_limit_and_huge_numbers_do_no_harm() {
        assert!(limit("0", "1").is_none());
        let huge = limit("99999999999", "99999999999").unwrap();
        for number in 0..1000 {
            assert_eq!(huge.take(&payer(number), false).1, None);
        }
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let limit = limit("4000000000", "1").unwrap();
        for number in 0..=2 * PAYERS as u128 {
            limit.take(&payer(number), false);
        }
        assert!(limit.requests.len() <= PAYERS + 1);
    }
}
