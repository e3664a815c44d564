//! Deliveries as JSON.

use domain::{DeliveryId, EventId, EventType, WebhookId, time_text};
use ledger::{Attempt, Delivery};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// A delivery in the log. Times are RFC 3339 in UTC.
#[derive(Serialize)]
pub(super) struct DeliveryView {
    id: DeliveryId,
    webhook_id: WebhookId,
    event_id: EventId,
    event_type: EventType,
    is_test: bool,
    state: &'static str,
    attempts: u16,
    #[serde(with = "time_text")]
    created_at: OffsetDateTime,
    #[serde(with = "time_text")]
    occurred_at: OffsetDateTime,
    #[serde(with = "time_text::option")]
    first_failed_at: Option<OffsetDateTime>,
    #[serde(with = "time_text::option")]
    next_attempt_at: Option<OffsetDateTime>,
    /// Then the delivery cannot be sent again.
    is_body_expired: bool,
}

/// One delivery with everything about it except the secret.
#[derive(Serialize)]
pub(super) struct DetailView<'a> {
    #[serde(flatten)]
    delivery: DeliveryView,
    /// What every attempt sends. Each attempt has its own signature, which is not stored.
    request: Value,
    attempt_log: Vec<AttemptView<'a>>,
}

#[derive(Serialize)]
struct AttemptView<'a> {
    attempt: u16,
    url: &'a str,
    #[serde(with = "time_text")]
    started_at: OffsetDateTime,
    duration_ms: u64,
    outcome: &'static str,
    status: Option<u16>,
    error: Option<&'a str>,
    /// The first bytes of the answer. Bytes that are not UTF-8 are replaced.
    response_body: std::borrow::Cow<'a, str>,
    #[serde(with = "time_text")]
    signed_at: OffsetDateTime,
}

impl DeliveryView {
    pub(super) fn of(webhook_id: WebhookId, delivery: &Delivery, is_body_expired: bool) -> Self {
        Self {
            id: delivery.id,
            webhook_id,
            event_id: delivery.event,
            event_type: delivery.event_type,
            is_test: delivery.is_test,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            created_at: delivery.created_at,
            occurred_at: delivery.occurred_at,
            first_failed_at: delivery.first_failed_at,
            next_attempt_at: delivery.next_attempt_at,
            is_body_expired,
        }
    }
}

impl<'a> DetailView<'a> {
    pub(super) fn of(webhook: WebhookId, delivery: &Delivery, body: Option<&[u8]>, attempts: &'a [Attempt]) -> Self {
        let headers = json!({
            "Content-Type": "application/json",
            "X-Service-Webhook-Id": delivery.id,
            "X-Service-Event": delivery.event_type,
        });
        Self {
            delivery: DeliveryView::of(webhook, delivery, body.is_none()),
            request: json!({"method": "POST", "headers": headers, "body": body.map(String::from_utf8_lossy)}),
            attempt_log: attempts.iter().map(AttemptView::of).collect(),
        }
    }
}

impl<'a> AttemptView<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            url: &attempt.url,
            started_at: attempt.started_at,
            duration_ms: u64::try_from(attempt.elapsed.as_millis()).unwrap_or(u64::MAX),
            outcome: attempt.outcome.as_str(),
            status: attempt.status,
            error: attempt.error.as_deref(),
            response_body: String::from_utf8_lossy(&attempt.answer_head),
            signed_at: attempt.signed_at,
        }
    }
}
