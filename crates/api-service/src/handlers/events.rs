//! `GET /api/v1/events/{event_id}/`: what became of an event, for each webhook.

use actix_web::HttpResponse;
use domain::{EventId, time_text::written};
use ledger::{Absence, Delivery, EventAtWebhook, FoundEvent};
use serde_json::{Value, json};

use crate::{
    calls::events::{self, explanation},
    http::{Answer, Caller, Id},
};

/// The tenant's events of this id. Another tenant's are unknown.
pub(crate) async fn read(caller: Caller, Id(id): Id<EventId>) -> Answer {
    let found = events::find(&caller, id).await?;
    let data: Value = found.events.iter().map(|found| event(id, found)).collect();
    Ok(HttpResponse::Ok().json(json!({"data": data, "is_complete": found.is_complete})))
}

fn event(id: EventId, event: &FoundEvent) -> Value {
    json!({
        "event_id": id,
        "event_type": event.event_type,
        "occurred_at": written(event.occurred_at),
        "received_at": written(event.received_at),
        "webhooks": event.webhooks.iter().map(at_webhook).collect::<Value>(),
    })
}

/// What became of the event at a webhook: a delivery, or the reason why there is none.
fn at_webhook(at: &EventAtWebhook) -> Value {
    let absence = at.delivery.as_ref().err().copied();
    json!({
        "webhook_id": at.webhook,
        "name": at.name,
        "is_deleted": at.is_deleted,
        "delivery": at.delivery.as_ref().ok().map(delivery),
        "reason": absence.map(Absence::as_str),
        "explanation": absence.map(explanation),
    })
}

fn delivery(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "state": delivery.state.as_str(),
        "attempts": delivery.attempts,
        "next_attempt_at": delivery.next_attempt_at.and_then(written),
        "created_at": written(delivery.created_at),
        "is_test": delivery.is_test,
    })
}
