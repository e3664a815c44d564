//! `/api/v1/webhooks/{id}/deliveries/`: the delivery log. It shows past attempts and what is still to come.

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{DeliveryId, WebhookId, time_text::written};
use ledger::{Attempt, Delivery, DeliveryFilter};
use serde_json::{Value, json};

use crate::{
    calls::{
        deliveries::{self, Detail},
        webhooks,
    },
    http::{Answer, ApiError, Body, Caller, Id, List, Query},
};

/// The deliveries of a webhook, deleted or not, newest event first. An unknown webhook counts before a faulty query.
pub(crate) async fn list(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<DeliveryId, DeliveryFilter>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Query(page, filter, cursors) = query?;
    let page = deliveries::list(&caller, webhook, filter, page).await?;
    let next_cursor = page.next.map(|last| cursors.after(last.as_uuid()));
    let bodies = deliveries::bodies(&caller, &page.deliveries).await?;
    let view = |delivery: &Delivery| view(webhook.id(), delivery, bodies.contains(&delivery.id));
    let data = page.deliveries.iter().map(view).collect();
    Ok(HttpResponse::Ok().json(List { data, next_cursor }))
}

/// One delivery, with its request and every attempt.
pub(crate) async fn read(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Detail { delivery, body, attempts } = deliveries::find(&caller, webhook, id).await?;
    let mut detail = view(webhook.id(), &delivery, body.is_some());
    // Each attempt has its own signature, which is not stored.
    let headers = json!({
        "Content-Type": "application/json",
        "X-Service-Webhook-Id": id,
        "X-Service-Event": delivery.event_type,
    });
    detail["request"] =
        json!({"method": "POST", "headers": headers, "body": body.as_deref().map(String::from_utf8_lossy)});
    detail["attempt_log"] = attempts.iter().map(attempt).collect();
    detail["is_attempt_log_complete"] = (attempts.len() >= usize::from(delivery.attempts)).into();
    Ok(HttpResponse::Ok().json(detail))
}

/// Sends a delivery again, in a fresh run of the schedule. A faulty body counts before an unknown webhook.
pub(crate) async fn resend(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    Body(()): Body<()>,
) -> Answer {
    Ok(accepted(webhook, &deliveries::resend(&caller, webhook, id).await?))
}

/// 202 with a delivery whose job is in the outbox, or published already.
pub(super) fn accepted(webhook: WebhookId, delivery: &Delivery) -> HttpResponse {
    let location = format!("/api/v1/webhooks/{webhook}/deliveries/{}/", delivery.id);
    HttpResponse::Accepted().insert_header((LOCATION, location)).json(view(webhook, delivery, true))
}

fn view(webhook: WebhookId, delivery: &Delivery, has_body: bool) -> Value {
    json!({
        "id": delivery.id,
        "webhook_id": webhook,
        "event_id": delivery.event,
        "event_type": delivery.event_type,
        "is_test": delivery.is_test,
        "state": delivery.state.as_str(),
        "attempts": delivery.attempts,
        "created_at": written(delivery.created_at),
        "occurred_at": written(delivery.occurred_at()),
        "first_failed_at": delivery.first_failed_at.and_then(written),
        "next_attempt_at": delivery.next_attempt_at.and_then(written),
        "is_body_expired": !has_body,
    })
}

fn attempt(attempt: &Attempt) -> Value {
    json!({
        "attempt": attempt.attempt,
        "url": attempt.url,
        "started_at": written(attempt.started_at),
        "duration_ms": u64::try_from(attempt.elapsed().as_millis()).unwrap_or(u64::MAX),
        "outcome": attempt.outcome.as_str(),
        "status": attempt.status,
        "error": attempt.error,
        "response_body": String::from_utf8_lossy(&attempt.answer_head),
        "signed_at": written(attempt.signed_at),
    })
}
