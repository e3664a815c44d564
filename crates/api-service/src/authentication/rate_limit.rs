//! The rate limit of a session's requests (settings `api.rate_limit_per_minute` and `api.rate_limit_burst`).

use std::time::{Duration, Instant};

use ledger::SessionHash;
use parking_lot::Mutex;
use service_kit::settings;

use super::recent::Recent;

/// Sessions that are remembered. A forgotten one starts with a full bucket.
const SESSIONS: usize = 100_000;

/// A token bucket per session, in this process only. A bucket is stored as the instant at which it will be full again
/// (the "generic cell rate algorithm").
pub(super) struct RateLimit {
    /// The time between two tokens.
    interval: Duration,
    /// The time from the first token of a full bucket to its last.
    slack: Duration,
    full: Mutex<Recent<Instant>>,
}

impl RateLimit {
    /// `None` when the limit per minute is 0, which limits nothing.
    pub(super) fn new(settings: &settings::Api) -> Option<Self> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let interval = Duration::from_secs(60).checked_div(count(settings.rate_limit_per_minute))?;
        let slack = interval.saturating_mul(count(settings.rate_limit_burst).saturating_sub(1));
        Some(Self { interval, slack, full: Mutex::new(Recent::new(SESSIONS)) })
    }

    /// Takes a token. If there is none, returns how long it takes until there is one.
    pub(super) fn take(&self, session: &SessionHash, now: Instant) -> Result<(), Duration> {
        let mut full = self.full.lock();
        let missing = full.get(session).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        match missing.checked_sub(self.slack) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                full.insert(session.clone(), now + missing + self.interval);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use service_kit::Settings;

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

    #[test]
    fn a_burst_passes_then_one_request_per_interval() {
        let limit = limit("30", "3").unwrap();
        let (session, start) = (SessionHash::of("a"), Instant::now());
        let at = |ms| limit.take(&session, start + Duration::from_millis(ms)).map_err(|wait| wait.as_millis());
        assert_eq!([at(0), at(0), at(0), at(0)], [Ok(()), Ok(()), Ok(()), Err(2000)]);
        assert_eq!([at(500), at(1999), at(2000), at(2000)], [Err(1500), Err(1), Ok(()), Err(2000)]);
        // Three intervals fill the bucket. More time adds no tokens.
        assert_eq!([at(60_000), at(60_000), at(60_000), at(60_000)], [Ok(()), Ok(()), Ok(()), Err(2000)]);
    }

    #[test]
    fn each_session_has_a_bucket_of_its_own() {
        let (limit, now) = (limit("1", "1").unwrap(), Instant::now());
        for id in ["a", "b"] {
            assert_eq!(limit.take(&SessionHash::of(id), now), Ok(()));
            assert_eq!(limit.take(&SessionHash::of(id), now), Err(Duration::from_secs(60)));
        }
    }

    #[test]
    fn zero_does_not_limit_and_huge_numbers_do_no_harm() {
        assert!(limit("0", "1").is_none());
        let huge = limit("99999999999", "99999999999").unwrap();
        let now = Instant::now();
        for _ in 0..1000 {
            assert_eq!(huge.take(&SessionHash::of("a"), now), Ok(()));
        }
    }
}
