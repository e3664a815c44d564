//! Webhooks as JSON (specification, section 2.1).

use domain::{EventType, WebhookId, time_text};
use ledger::{Backlog, Webhook};
use serde::Serialize;
use time::OffsetDateTime;

/// A webhook without its secret. Times are RFC 3339 in UTC.
#[derive(Serialize)]
pub(super) struct WebhookView<'a> {
    id: WebhookId,
    name: &'a str,
    url: &'a str,
    events: &'a [EventType],
    is_active: bool,
    #[serde(with = "time_text")]
    created_at: OffsetDateTime,
    #[serde(with = "time_text")]
    updated_at: OffsetDateTime,
    #[serde(with = "time_text::option")]
    last_success_at: Option<OffsetDateTime>,
    failure_count: i32,
    /// When the first of these failures ended.
    #[serde(with = "time_text::option")]
    failing_since: Option<OffsetDateTime>,
    last_failure: Option<FailureView<'a>>,
    #[serde(with = "time_text::option")]
    next_attempt_at: Option<OffsetDateTime>,
    deliveries: BacklogView,
    is_cancelling: bool,
    is_queued: bool,
}

/// The last failed attempt, which a later success leaves as it is.
#[derive(Serialize)]
struct FailureView<'a> {
    #[serde(with = "time_text")]
    at: OffsetDateTime,
    error: &'a str,
}

/// Counts that stop at 1,000.
#[derive(Serialize)]
struct BacklogView {
    waiting: i64,
    dropped: i64,
    skipped: i64,
}

/// The answer to a registration.
#[derive(Serialize)]
pub(super) struct CreatedView<'a> {
    #[serde(flatten)]
    pub(super) webhook: WebhookView<'a>,
    pub(super) signing_secret: &'a str,
}

impl<'a> WebhookView<'a> {
    pub(super) fn of(webhook: &'a Webhook) -> Self {
        let Backlog { waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued } = webhook.backlog;
        Self {
            id: webhook.id,
            name: &webhook.name,
            url: &webhook.url,
            events: &webhook.events,
            is_active: webhook.is_active,
            created_at: webhook.created_at,
            updated_at: webhook.updated_at,
            last_success_at: webhook.last_success_at,
            failure_count: webhook.failure_count,
            failing_since: webhook.failing_since,
            last_failure: webhook.last_failure.as_ref().map(|(at, error)| FailureView { at: *at, error }),
            next_attempt_at,
            deliveries: BacklogView { waiting, dropped, skipped },
            is_cancelling,
            is_queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn webhook() -> Webhook {
        Webhook {
            id: "0192f0c1-0000-7000-8000-0000000000ab".parse().unwrap(),
            name: "orders".into(),
            url: "https://example.com/in".into(),
            events: vec![EventType::QuoteClosed, EventType::ReturnNoteCreated],
            is_active: true,
            created_at: datetime!(2026-03-01 09:30:00.123456 UTC),
            updated_at: datetime!(2026-03-01 09:30:00 UTC),
            last_success_at: None,
            failure_count: 2,
            failing_since: Some(datetime!(2026-03-01 09:31 UTC)),
            last_failure: Some((datetime!(2026-03-01 09:32 UTC), "answered 500".to_owned())),
            backlog: Backlog {
                waiting: 1,
                dropped: 1_000,
                skipped: 0,
                next_attempt_at: Some(datetime!(2026-03-01 09:36 UTC)),
                is_cancelling: false,
                is_queued: true,
            },
        }
    }

    #[test]
    fn a_webhook_shows_its_health_and_no_secret() {
        let expected = json!({
            "id": "0192f0c1-0000-7000-8000-0000000000ab", "name": "orders", "url": "https://example.com/in",
            "events": ["quote.closed", "return_note.created"], "is_active": true,
            "created_at": "2026-03-01T09:30:00.123456Z", "updated_at": "2026-03-01T09:30:00.000000Z",
            "last_success_at": null, "failure_count": 2, "failing_since": "2026-03-01T09:31:00.000000Z",
            "last_failure": {"at": "2026-03-01T09:32:00.000000Z", "error": "answered 500"},
            "next_attempt_at": "2026-03-01T09:36:00.000000Z", "deliveries": {"waiting": 1, "dropped": 1000, "skipped": 0},
            "is_cancelling": false, "is_queued": true,
        });
        assert_eq!(serde_json::to_value(WebhookView::of(&webhook())).unwrap(), expected);
    }

    #[test]
    fn a_created_one_is_the_same_and_its_secret() {
        let webhook = webhook();
        let created = CreatedView { webhook: WebhookView::of(&webhook), signing_secret: "whsec_1" };
        let mut created = serde_json::to_value(created).unwrap();
        let secret = created.as_object_mut().unwrap().remove("signing_secret");
        assert_eq!(secret, Some(json!("whsec_1")));
        assert_eq!(created, serde_json::to_value(WebhookView::of(&webhook)).unwrap());
    }
}
