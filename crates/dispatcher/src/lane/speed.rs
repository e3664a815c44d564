//! The memory of slow webhooks (crates/README.md, fairness). It is lost at a restart, and learned again within a second.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use domain::WebhookId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// An attempt that takes this long is slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The time for which an attempt counts. A webhook stays slow for this time after a slow attempt, unless a quick one ends that.
/// A webhook is trusted if it has answered quickly within this time, and was not slow within it.
const SPEED_MEMORY: Duration = Duration::from_secs(10 * 60);
/// The number of remembered webhooks, about. Others count as unknown.
const MAX_REMEMBERED_WEBHOOKS: usize = 50_000;

/// The known speed of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    /// It answers quickly, and has not been slow lately.
    Trusted,
    /// It is not known to be slow.
    Unknown,
    /// It is slow, but it answers.
    Late,
    /// Its latest slow attempt had no answer, or has none yet.
    Silent,
}

/// The speeds of webhooks, as this process has seen them.
pub(crate) struct Speeds {
    webhooks: Mutex<HashMap<WebhookId, Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The number of attempts that have been under way for over [`SLOW_AFTER`].
    slow_now: u32,
    /// The latest slow attempt: when it became slow, or ended.
    slow_at: Option<Instant>,
    /// True if that attempt had an answer. While none has answered late, nobody knows that it will.
    answers: bool,
    /// True if a quick attempt has ended since that one, even one that failed.
    is_over: bool,
    /// The end of the latest attempt that was answered quickly.
    quick_at: Option<Instant>,
}

impl Seen {
    fn is_slow(&self, now: Instant) -> bool {
        self.slow_now > 0 || (!self.is_over && is_lately(self.slow_at, now))
    }

    fn speed(&self, now: Instant) -> Speed {
        match (self.is_slow(now), self.answers) {
            (true, true) => Speed::Late,
            (true, false) => Speed::Silent,
            _ if is_lately(self.quick_at, now) && !is_lately(self.slow_at, now) => Speed::Trusted,
            _ => Speed::Unknown,
        }
    }
}

fn is_lately(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.duration_since(at) < SPEED_MEMORY)
}

impl Speeds {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { webhooks: Mutex::default() })
    }

    pub(crate) fn of(&self, webhook: WebhookId) -> Speed {
        self.webhooks.lock().get(&webhook).map_or(Speed::Unknown, |seen| seen.speed(Instant::now()))
    }

    /// Begins to time an attempt.
    pub(crate) fn begin(self: &Arc<Self>, webhook: WebhookId) -> Timed {
        Timed {
            speeds: Arc::clone(self),
            webhook,
            began: Instant::now(),
            slow: Mutex::default(),
            has_answer: AtomicBool::default(),
            is_not_made: AtomicBool::default(),
        }
    }

    fn note(&self, webhook: WebhookId, change: impl FnOnce(&mut Seen, Instant)) {
        let (mut webhooks, now) = (self.webhooks.lock(), Instant::now());
        if webhooks.len() >= MAX_REMEMBERED_WEBHOOKS && !webhooks.contains_key(&webhook) {
            webhooks.retain(|_, seen| seen.is_slow(now));
        }
        change(webhooks.entry(webhook).or_default(), now);
    }
}

/// An attempt that is timed until this is dropped.
pub(crate) struct Timed {
    speeds: Arc<Speeds>,
    webhook: WebhookId,
    began: Instant,
    /// Set once it is slow.
    slow: Mutex<Option<Slow>>,
    has_answer: AtomicBool,
    is_not_made: AtomicBool,
}

/// When an attempt became slow, and what was known before.
struct Slow {
    from: Instant,
    slow_at: Option<Instant>,
    is_over: bool,
}

impl Timed {
    /// When the attempt counts as slow.
    pub(crate) fn slow_from(&self) -> Instant {
        self.began + SLOW_AFTER
    }

    /// The attempt has lasted for [`SLOW_AFTER`]: its webhook is slow from now on.
    pub(crate) fn mark_slow(&self) {
        let mut slow = self.slow.lock();
        if slow.is_none() {
            self.speeds.note(self.webhook, |seen, now| {
                *slow = Some(Slow { from: now, slow_at: seen.slow_at, is_over: seen.is_over });
                (seen.slow_now, seen.slow_at, seen.is_over) = (seen.slow_now + 1, Some(now), false);
            });
        }
    }

    pub(crate) fn mark_answered(&self) {
        self.has_answer.store(true, Relaxed);
    }

    /// The attempt was not made: it says nothing of its webhook.
    pub(crate) fn mark_not_made(&self) {
        self.is_not_made.store(true, Relaxed);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let (slow, has_answer) = (self.slow.get_mut().take(), *self.has_answer.get_mut());
        let is_not_made = *self.is_not_made.get_mut();
        self.speeds.note(self.webhook, |seen, now| {
            seen.slow_now = seen.slow_now.saturating_sub(slow.is_some().into());
            if is_not_made {
                // Another attempt may have become slow, or ended, meanwhile.
                if let Some(slow) = slow.filter(|slow| seen.slow_at == Some(slow.from)) {
                    (seen.slow_at, seen.is_over) = (slow.slow_at, seen.is_over || slow.is_over);
                }
            } else if now.duration_since(self.began) >= SLOW_AFTER {
                (seen.slow_at, seen.is_over, seen.answers) = (Some(now), false, has_answer);
            } else {
                seen.is_over = true;
                seen.quick_at = if has_answer { Some(now) } else { seen.quick_at };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use uuid::Uuid;

    use super::*;

    fn webhook() -> WebhookId {
        Uuid::from_u128(1).into()
    }

    async fn attempt(speeds: &Arc<Speeds>, takes: Duration, has_answer: bool) {
        let timed = speeds.begin(webhook());
        if takes >= SLOW_AFTER {
            advance(SLOW_AFTER).await;
            timed.mark_slow();
            advance(takes - SLOW_AFTER).await;
        } else {
            advance(takes).await;
        }
        if has_answer {
            timed.mark_answered();
        }
    }

    const QUICK_ATTEMPT: Duration = Duration::from_millis(20);
    const HANGING_ATTEMPT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_webhook_is_slow_once_an_attempt_has_lasted_a_second_and_until_a_quick_one_ends() {
        let speeds = Speeds::new();
        assert_eq!(speeds.of(webhook()), Speed::Unknown);
        let timed = speeds.begin(webhook());
        advance(SLOW_AFTER).await;
        assert_eq!(speeds.of(webhook()), Speed::Unknown);
        timed.mark_slow();
        assert_eq!(speeds.of(webhook()), Speed::Silent);
        attempt(&speeds, QUICK_ATTEMPT, true).await;
        assert_eq!(speeds.of(webhook()), Speed::Silent, "a slow one is under way");
        drop(timed);
        assert_eq!(speeds.of(webhook()), Speed::Silent, "it has ended since");
        attempt(&speeds, QUICK_ATTEMPT, true).await;
        assert_eq!(speeds.of(webhook()), Speed::Unknown, "it is not trusted yet");
        advance(SPEED_MEMORY).await;
        attempt(&speeds, QUICK_ATTEMPT, true).await;
        assert_eq!(speeds.of(webhook()), Speed::Trusted);
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_slow_attempt_says_if_a_webhook_is_late_or_silent() {
        let speeds = Speeds::new();
        for (has_answer, expected) in [(true, Speed::Late), (false, Speed::Silent), (true, Speed::Late)] {
            attempt(&speeds, HANGING_ATTEMPT, has_answer).await;
            assert_eq!(speeds.of(webhook()), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slowness_and_trust_are_forgotten_after_some_minutes() {
        let speeds = Speeds::new();
        attempt(&speeds, HANGING_ATTEMPT, false).await;
        advance(SPEED_MEMORY).await;
        assert_eq!(speeds.of(webhook()), Speed::Unknown);
        let speeds = Speeds::new();
        attempt(&speeds, QUICK_ATTEMPT, true).await;
        assert_eq!(speeds.of(webhook()), Speed::Trusted);
        advance(SPEED_MEMORY).await;
        assert_eq!(speeds.of(webhook()), Speed::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_failure_ends_slowness_and_earns_no_trust() {
        let speeds = Speeds::new();
        attempt(&speeds, HANGING_ATTEMPT, false).await;
        attempt(&speeds, QUICK_ATTEMPT, false).await;
        assert_eq!(speeds.of(webhook()), Speed::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_was_not_made_changes_nothing() {
        for (takes, has_answer, expected) in [
            (HANGING_ATTEMPT, false, Speed::Silent),
            (HANGING_ATTEMPT, true, Speed::Late),
            (QUICK_ATTEMPT, true, Speed::Trusted),
        ] {
            let speeds = Speeds::new();
            attempt(&speeds, takes, has_answer).await;
            for takes in [QUICK_ATTEMPT, HANGING_ATTEMPT] {
                let timed = speeds.begin(webhook());
                advance(takes).await;
                if takes >= SLOW_AFTER {
                    timed.mark_slow();
                }
                timed.mark_not_made();
                drop(timed);
                assert_eq!(speeds.of(webhook()), expected, "{takes:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded_and_keeps_the_slow() {
        let speeds = Speeds::new();
        attempt(&speeds, HANGING_ATTEMPT, false).await;
        for number in 0..3 * MAX_REMEMBERED_WEBHOOKS {
            let number = u128::try_from(number).unwrap() + 2;
            speeds.begin(Uuid::from_u128(number).into()).mark_answered();
        }
        assert!(speeds.webhooks.lock().len() <= MAX_REMEMBERED_WEBHOOKS + 1);
        assert_eq!(speeds.of(webhook()), Speed::Silent);
    }
}
