//! `/api/v1/events/{event_id}/`: the fate of an event at each webhook; `/api/v1/event-types/`: the types to subscribe to
//! (specification, section 6).

use actix_web::HttpResponse;
use domain::{EventId, EventType, catalogue, time_text::written};
use ledger::{Absence, Delivery, EventAtWebhook, FoundEvent, FoundEvents};
use serde_json::{Value, json};

use crate::http::{ApiError, Caller, HandlerResult, Id};

/// Answers with the tenant's events of this id. Another tenant's events are unknown.
pub(crate) async fn get(caller: Caller, Id(id): Id<EventId>) -> HandlerResult {
    let found = find(&caller, id).await?;
    let data: Value = found.events.iter().map(|found| event(id, found)).collect();
    Ok(HttpResponse::Ok().json(json!({"data": data, "is_complete": found.is_complete})))
}

/// Finds the tenant's events of this id.
pub(crate) async fn find(caller: &Caller, id: EventId) -> Result<FoundEvents, ApiError> {
    let found = caller.ledger.event_find(caller.admin.tenant, id, caller.kept.log).await?;
    if found.events.is_empty() { Err(ApiError::UnknownEvent) } else { Ok(found) }
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

/// The fate of the event at a webhook: a delivery, or the reason why there is none.
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

/// Explains to people why there is no delivery.
pub(crate) const fn explanation(absence: Absence) -> &'static str {
    match absence {
        Absence::Deleted => "The webhook was deleted before the event arrived.",
        Absence::CreatedLater => "The webhook was registered after the event arrived.",
        Absence::Test => "The event is the sample of a test that was sent to another webhook only.",
        Absence::Expired => {
            "The event is older than the retention period: its delivery, if there was one, may have been deleted."
        }
        Absence::NotSubscribed => "The webhook is not subscribed to events of this type.",
        Absence::SubscribedLater => {
            "The webhook is subscribed to events of this type now, and was not sent this one: it was subscribed later, \
             or it was registered in the moment in which the event came."
        }
    }
}

/// Answers with all seven event types.
pub(crate) async fn list_types() -> HandlerResult {
    let types = EventType::ALL.into_iter().map(event_type);
    let data = types.collect::<Result<Value, _>>().map_err(ApiError::unexpected)?;
    Ok(HttpResponse::Ok().json(json!({"data": data})))
}

/// An event type with a JSON Schema and a sample of its data.
fn event_type(event_type: EventType) -> serde_json::Result<Value> {
    Ok(json!({
        "event_type": event_type,
        "description": catalogue::description(event_type),
        "schema": serde_json::from_str::<Value>(catalogue::schema(event_type))?,
        "sample": serde_json::from_str::<Value>(catalogue::sample(event_type))?,
    }))
}
