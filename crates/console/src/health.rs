//! The health of a webhook, in words.

use ledger::{Backlog, Webhook};
use maud::{Markup, html};
use time::{Duration, OffsetDateTime};

use crate::{
    text::{bounded, count, shortened},
    times::{clock, length, relative},
};

/// What an administrator has to know first. The order is that of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Attempts fail, and deliveries have been dropped.
    Dropping,
    /// Attempts fail.
    Failing,
    /// All is well now, and deliveries that were dropped or skipped can be recovered.
    Recoverable,
    /// An administrator paused it.
    Paused,
    /// Nothing has been tried.
    Untried,
    /// The last attempt succeeded.
    Well,
}

impl Health {
    /// The health of a webhook.
    pub fn of(webhook: &Webhook) -> Self {
        let Backlog { dropped, skipped, .. } = webhook.backlog;
        if !webhook.settings.is_active {
            Self::Paused
        } else if webhook.health.failure_count > 0 {
            if dropped > 0 { Self::Dropping } else { Self::Failing }
        } else if dropped + skipped > 0 {
            Self::Recoverable
        } else if webhook.health.last_success_at.is_none() {
            Self::Untried
        } else {
            Self::Well
        }
    }

    /// The class of its colour, the word in the query string of the list, and the word for people.
    const fn terms(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Dropping | Self::Failing => ("bad", "failing", "Failing"),
            Self::Recoverable => ("warn", "recoverable", "To recover"),
            Self::Paused => ("idle", "paused", "Paused"),
            Self::Untried => ("idle", "new", "New"),
            Self::Well => ("good", "well", "Well"),
        }
    }

    /// The class of its colour.
    pub(crate) const fn class(self) -> &'static str {
        self.terms().0
    }

    /// The word in the query string of the list.
    pub const fn key(self) -> &'static str {
        self.terms().1
    }

    /// One word.
    pub(crate) const fn word(self) -> &'static str {
        self.terms().2
    }

    /// A mark that tells the kinds apart by its shape too.
    pub(crate) fn mark(self) -> Markup {
        html! { span.dot.(self.class()).(self.key()) {} }
    }

    /// The key by which webhooks are listed, the worst first. Those that have failed for longest come first.
    pub fn urgency(webhook: &Webhook) -> (Self, Option<OffsetDateTime>) {
        (Self::of(webhook), webhook.health.failing_since)
    }
}

/// A webhook's health in words: a sentence, and what else is to be known.
pub(crate) fn words(webhook: &Webhook, now: OffsetDateTime) -> Markup {
    html! {
        span.first { (sentence(webhook, now)) }
        @if let Some(more) = consequences(webhook, now) { " " span.more { (more) } }
        @if webhook.backlog.recovery.is_some() {
            " " span.more { "A recovery is running: " (count(u64::try_from(webhook.backlog.recovered).unwrap_or_default(), "delivery", "deliveries")) " sent again so far." }
        }
        @if webhook.backlog.is_cancelling { " " span.more { "Waiting deliveries are being cancelled." } }
        @else if webhook.backlog.is_queued && webhook.settings.is_active {
            " " span.more { "Deliveries are queued: the receiver does not answer in time. The service sends them automatically." }
        }
    }
}

fn sentence(webhook: &Webhook, now: OffsetDateTime) -> Markup {
    let last_success = |before: &str, at| html! { strong { (before) } ", last success " (relative(at, now)) "." };
    match (Health::of(webhook), webhook.health.last_success_at) {
        (Health::Dropping | Health::Failing, _) => {
            let since = webhook.health.failing_since.map(|since| length((now - since).max(Duration::SECOND)));
            let why = webhook.health.last_failure.as_ref();
            html! {
                strong { "Failing" @if let Some(since) = since { " for " (since) } }
                @if let Some(why) = why { ": " (shortened(why)) "." } @else { "." }
            }
        }
        (Health::Paused, _) => html! { strong { "Paused" } ": nothing is sent." },
        (Health::Untried, _) => html! { strong { "New" } ": no event has been delivered yet." },
        (Health::Recoverable, Some(at)) => last_success("Works again", at),
        (Health::Recoverable, None) => html! { "No delivery has succeeded yet." },
        (Health::Well, at) => html! { "All well" @if let Some(at) = at { ", last success " (relative(at, now)) } "." },
    }
}

fn consequences(webhook: &Webhook, now: OffsetDateTime) -> Option<Markup> {
    let Backlog { waiting, dropped, skipped, next_attempt_at, .. } = webhook.backlog;
    let counted = |count: i64, what: &str| (count > 0).then(|| bounded(count, Backlog::MAX_COUNT, what, what));
    if Health::of(webhook) == Health::Recoverable {
        let lost: Vec<_> = [counted(dropped, "dropped"), counted(skipped, "skipped")].into_iter().flatten().collect();
        let waiting = counted(waiting, "on the way");
        return Some(
            html! { (lost.join(" and ")) @if webhook.backlog.recovery.is_none() { " can be recovered" } @if let Some(waiting) = waiting { ", " (waiting) } "." },
        );
    }
    let parts: Vec<_> = [
        counted(dropped, "dropped"),
        counted(skipped, "skipped"),
        counted(waiting, if webhook.settings.is_active { "to be retried" } else { "held" }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() && next_attempt_at.is_none() {
        return None;
    }
    Some(html! {
        (parts.join(", "))
        @if let Some(at) = next_attempt_at {
            @if parts.is_empty() { "Next" } @else { ", next" } " attempt " @if at > now { "at " (clock(at, now)) } @else { "now" }
        }
        "."
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::EventType;
    use ledger::{WebhookHealth, WebhookSettings};
    use time::macros::datetime;

    use super::*;

    pub(crate) const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    /// The frame of a page for this user, with this token.
    pub(crate) fn frame(user: &str, token: &str) -> crate::Frame {
        let (user, token) = (user.to_owned(), token.to_owned());
        let tenant = uuid::Uuid::nil().into();
        crate::Frame { tenant, user, token, now: NOW, done: None, logs_out: true, brake: None }
    }

    pub(crate) fn webhook() -> Webhook {
        Webhook {
            id: "0192f0c1-0000-7000-8000-0000000000ab".parse().unwrap(),
            settings: WebhookSettings {
                name: "orders".into(),
                url: "https://example.com/in".into(),
                events: vec![EventType::QuoteClosed],
                is_active: true,
                ..WebhookSettings::default()
            },
            header_names: Vec::new(),
            created_at: NOW - Duration::DAY,
            updated_at: NOW - Duration::DAY,
            deleted_at: None,
            health: WebhookHealth { last_success_at: Some(NOW - Duration::seconds(12)), ..WebhookHealth::default() },
            backlog: Backlog::default(),
        }
    }

    fn failing() -> Webhook {
        let backlog = Backlog {
            waiting: 2,
            dropped: 41,
            next_attempt_at: Some(NOW + Duration::minutes(125)),
            ..Backlog::default()
        };
        Webhook { backlog, ..failing_for(Duration::hours(3)) }
    }

    fn failing_for(time: Duration) -> Webhook {
        let health = WebhookHealth {
            failure_count: 7,
            failing_since: Some(NOW - time),
            last_failure_at: Some(NOW),
            last_failure: Some("the receiver answered 503 Service Unavailable".to_owned()),
            ..webhook().health
        };
        Webhook { health, ..webhook() }
    }

    fn paused() -> Webhook {
        let settings = WebhookSettings { is_active: false, ..webhook().settings };
        Webhook { settings, ..webhook() }
    }

    fn plain(webhook: &Webhook) -> String {
        let html = words(webhook, NOW).into_string();
        let mut text = String::new();
        let mut is_tag = false;
        for c in html.chars() {
            match c {
                '<' => is_tag = true,
                '>' => is_tag = false,
                c if !is_tag => text.push(c),
                _ => {}
            }
        }
        text
    }

    #[test]
    fn health_is_said_in_a_sentence() {
        let new = Webhook { health: WebhookHealth::default(), ..webhook() };
        let gaps = Webhook { backlog: Backlog { dropped: 1, skipped: 2, ..Backlog::default() }, ..webhook() };
        let recovering = Webhook {
            backlog: Backlog { recovery: Some(uuid::Uuid::nil()), recovered: 1_742, ..gaps.backlog },
            ..gaps.clone()
        };
        for (webhook, words) in [
            (webhook(), "All well, last success 12 s ago."),
            (
                failing(),
                "Failing for 3 h: the receiver answered 503 Service Unavailable. 41 dropped, 2 to be retried, next attempt at 14:05 UTC.",
            ),
            (gaps, "Works again, last success 12 s ago. 1 dropped and 2 skipped can be recovered."),
            (paused(), "Paused: nothing is sent."),
            (new, "New: no event has been delivered yet."),
            (
                recovering,
                "Works again, last success 12 s ago. 1 dropped and 2 skipped. A recovery is running: 1\u{202f}742 deliveries sent again so far.",
            ),
        ] {
            assert_eq!(plain(&webhook), words);
        }
    }

    #[test]
    fn the_worst_comes_first() {
        let longer = Webhook { health: failing_for(Duration::DAY).health, ..failing() };
        let mut all = [webhook(), paused(), failing(), longer.clone()];
        all.sort_by_key(Health::urgency);
        assert_eq!(all.each_ref().map(Health::of), [Health::Dropping, Health::Dropping, Health::Paused, Health::Well]);
        assert_eq!(all[0], longer);
    }
}
