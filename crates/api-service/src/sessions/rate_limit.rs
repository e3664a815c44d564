//! The rate limit of requests (settings `api.rate_limit_per_minute` and `api.rate_limit_burst`), in this process only. A
//! tenant has the whole rate, and each of its sessions half of it, so no session uses up its tenant's tokens. The console
//! has tokens of its own: no script locks administrators out of its pages.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use domain::TenantId;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::StateInformationMiddleware,
    state::{InMemoryState, NotKeyed},
};
use ledger::CredentialHash;
use moka::{policy::EvictionPolicy, sync::Cache};
use service_kit::settings;

use super::{KnownSession, MAX_CACHED_SESSIONS};

/// The time after a logged refusal in which no other one of the tenant's is logged.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The highest burst: `governor` computes the time of a whole one in 64 bits, in nanoseconds.
const MAX_BURST: usize = 1_000_000;

/// The part of the service that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Api,
    Console,
}

/// The tokens of tenants and sessions for the API and for the console, and those of session ids that are not confirmed.
pub(super) struct RateLimit {
    api: TenantTokens,
    console: TenantTokens,
    unconfirmed: Buckets<CredentialHash>,
    logged: Cache<TenantId, ()>,
}

struct TenantTokens {
    tenants: Buckets<TenantId>,
    sessions: Buckets<CredentialHash>,
}

type Bucket = RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>;

/// A bucket of tokens for each key, of those that were used last.
struct Buckets<Key> {
    quota: Quota,
    by_key: Cache<Key, Arc<Bucket>>,
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

/// The tokens that a bucket has left. `Err`: no token, with the time until there is one.
pub(super) type TokenResult = (Allowance, Result<(), Duration>);

impl RateLimit {
    /// `None` when the limit per minute is 0, which limits nothing.
    pub(super) fn new(settings: &settings::Api) -> Option<Self> {
        let count = |number: usize| NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
        let burst = count(settings.rate_limit_burst.min(MAX_BURST)).unwrap_or(NonZeroU32::MIN);
        let whole = Quota::per_minute(count(settings.rate_limit_per_minute)?).allow_burst(burst);
        let half = Quota::with_period(whole.replenish_interval() * 2)?
            .allow_burst(NonZeroU32::new(burst.get() / 2).unwrap_or(NonZeroU32::MIN));
        let tokens = || TenantTokens { tenants: Buckets::new(whole), sessions: Buckets::new(half) };
        Some(Self {
            api: tokens(),
            console: tokens(),
            unconfirmed: Buckets::new(half),
            logged: Cache::builder().max_capacity(MAX_CACHED_SESSIONS).time_to_live(REFUSAL_LOG_INTERVAL).build(),
        })
    }

    /// Takes a token of a confirmed session, and one of its tenant if it is an administrator's. What is left is that of the
    /// bucket with fewer tokens. The first refusal in a minute of a tenant's requests is logged.
    pub(super) fn take(&self, target: Target, hash: &CredentialHash, known: &KnownSession) -> TokenResult {
        let tokens = match target {
            Target::Api => &self.api,
            Target::Console => &self.console,
        };
        // A refused request costs its tenant nothing.
        let mut taken = tokens.sessions.take(hash);
        if taken.1.is_ok() && known.is_admin {
            let of_tenant = tokens.tenants.take(&known.tenant);
            if of_tenant.1.is_err() || of_tenant.0.remaining < taken.0.remaining {
                taken = of_tenant;
            }
        }
        if taken.1.is_err() && self.logged.entry(known.tenant).or_insert(()).is_fresh() {
            tracing::warn!(tenant = %known.tenant, user = &*known.user, ?target, "requests are above the rate limit");
        }
        taken
    }

    /// Takes a token of a session id that is not confirmed.
    pub(super) fn take_unconfirmed(&self, hash: &CredentialHash) -> TokenResult {
        self.unconfirmed.take(hash)
    }
}

impl<Key: Clone + Eq + std::hash::Hash + Send + Sync + 'static> Buckets<Key> {
    fn new(quota: Quota) -> Self {
        let by_key = Cache::builder().max_capacity(MAX_CACHED_SESSIONS).eviction_policy(EvictionPolicy::lru()).build();
        Self { quota, by_key, clock: DefaultClock::default() }
    }

    fn take(&self, key: &Key) -> TokenResult {
        let new = || Arc::new(RateLimiter::direct(self.quota).with_middleware());
        let bucket = self.by_key.get_with_by_ref(key, new);
        let limit = self.quota.burst_size().get();
        let (remaining, token) = match bucket.check() {
            Ok(state) => (state.remaining_burst_capacity(), Ok(())),
            Err(not_until) => (0, Err(not_until.wait_time_from(self.clock.now()))),
        };
        let reset = self.quota.replenish_interval().saturating_mul(limit - remaining.min(limit));
        (Allowance { limit, remaining, reset }, token)
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
    use uuid::Uuid;

    use super::*;
    use crate::routes::tests::settings_with;

    fn limit(per_minute: &str, burst: &str) -> Option<RateLimit> {
        RateLimit::new(&settings_with(&[("RATE_LIMIT_PER_MINUTE", per_minute), ("RATE_LIMIT_BURST", burst)]).api)
    }

    fn known(tenant: u128, is_admin: bool) -> KnownSession {
        KnownSession { tenant: Uuid::from_u128(tenant).into(), user: "u".into(), is_admin }
    }

    /// Takes a token of the API as a session of tenant 1's administrator. `Ok`: limit, remaining and seconds to reset.
    fn taken(limit: &RateLimit, session: &str) -> Result<(u32, u32, u64), Duration> {
        let (Allowance { limit, remaining, reset }, token) =
            limit.take(Target::Api, &CredentialHash::of(session), &known(1, true));
        token.map(|()| (limit, remaining, reset.as_secs()))
    }

    #[test]
    fn a_session_has_half_of_its_tenants_tokens_and_the_answer_says_what_is_left_of_the_fewer() {
        let limit = limit("6", "5").unwrap();
        assert_eq!(taken(&limit, "script"), Ok((2, 1, 20)));
        assert_eq!(taken(&limit, "script"), Ok((2, 0, 40)));
        for _ in 0..100 {
            let wait = taken(&limit, "script").unwrap_err();
            assert!((Duration::from_secs(19)..=Duration::from_secs(20)).contains(&wait), "{wait:?}");
        }
        assert_eq!(taken(&limit, "colleague"), Ok((2, 1, 20)), "refused requests cost the tenant nothing");
        assert_eq!(taken(&limit, "colleague"), Ok((2, 0, 40)));
        assert_eq!(taken(&limit, "third"), Ok((5, 0, 50)), "the tenant's tokens are fewer");
        let wait = taken(&limit, "fourth").unwrap_err();
        assert!((Duration::from_secs(9)..=Duration::from_secs(10)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn the_console_other_tenants_and_those_who_are_not_administrators_have_tokens_of_their_own() {
        let limit = limit("1", "1").unwrap();
        assert!(taken(&limit, "script").is_ok() && taken(&limit, "script").is_err());
        let hash = CredentialHash::of("script");
        for (target, known) in [(Target::Console, known(1, true)), (Target::Api, known(2, true))] {
            let hash = CredentialHash::of(&format!("{target:?}"));
            assert_eq!(limit.take(target, &hash, &known).1, Ok(()), "{target:?}");
        }
        assert_eq!(limit.take(Target::Api, &CredentialHash::of("clerk"), &known(1, false)).1, Ok(()));
        assert_eq!(limit.take_unconfirmed(&hash).1, Ok(()));
        assert!(limit.take_unconfirmed(&hash).1.is_err());
    }

    #[test]
    fn zero_does_not_limit_and_huge_numbers_do_no_harm() {
        assert!(limit("0", "1").is_none());
        for per_minute in ["1", "99999999999"] {
            let huge = limit(per_minute, "99999999999").unwrap();
            for session in 0..1000 {
                assert!(taken(&huge, &session.to_string()).is_ok(), "{per_minute}");
            }
        }
    }

    #[test]
    fn buckets_are_of_a_bounded_number() {
        let limit = limit("1", "1").unwrap();
        for number in 0..2 * MAX_CACHED_SESSIONS {
            _ = limit.take_unconfirmed(&CredentialHash::of(&number.to_string()));
        }
        limit.unconfirmed.by_key.run_pending_tasks();
        assert!(limit.unconfirmed.by_key.entry_count() <= MAX_CACHED_SESSIONS);
    }
}
