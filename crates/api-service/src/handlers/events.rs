//! `GET /api/v1/events/{event_id}/`: what became of an event, for each webhook.

use actix_web::HttpResponse;
use domain::{DeliveryId, EventId, EventType, WebhookId, time_text};
use ledger::{Absence, EventAtWebhook, EventDelivery, FoundEvent};
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    caller::Caller,
    calls::events::{self, explanation},
    problem::Answer,
    request::Id,
};

/// The newest events of an id.
#[derive(Serialize)]
struct EventsView<'a> {
    data: Vec<EventView<'a>>,
    is_complete: bool,
}

#[derive(Serialize)]
struct EventView<'a> {
    event_id: EventId,
    event_type: EventType,
    #[serde(with = "time_text")]
    occurred_at: OffsetDateTime,
    #[serde(with = "time_text")]
    received_at: OffsetDateTime,
    webhooks: Vec<EventAtWebhookView<'a>>,
}

/// What became of the event at a webhook: a delivery, or the reason why there is none.
#[derive(Serialize)]
struct EventAtWebhookView<'a> {
    webhook_id: WebhookId,
    name: &'a str,
    is_deleted: bool,
    delivery: Option<DeliveryView>,
    reason: Option<&'static str>,
    explanation: Option<&'static str>,
}

#[derive(Serialize)]
struct DeliveryView {
    id: DeliveryId,
    state: &'static str,
    attempts: u16,
    #[serde(with = "time_text::option")]
    next_attempt_at: Option<OffsetDateTime>,
    #[serde(with = "time_text")]
    created_at: OffsetDateTime,
    is_test: bool,
}

/// The tenant's events of this id. Another tenant's are unknown.
pub(crate) async fn read(caller: Caller, Id(id): Id<EventId>) -> Answer {
    let found = events::find(&caller, id).await?;
    let data = found.events.iter().map(|event| EventView::of(id, event)).collect();
    Ok(HttpResponse::Ok().json(EventsView { data, is_complete: found.is_complete }))
}

impl<'a> EventView<'a> {
    fn of(event_id: EventId, event: &'a FoundEvent) -> Self {
        Self {
            event_id,
            event_type: event.event_type,
            occurred_at: event.occurred_at,
            received_at: event.received_at,
            webhooks: event.webhooks.iter().map(EventAtWebhookView::of).collect(),
        }
    }
}

impl<'a> EventAtWebhookView<'a> {
    fn of(webhook: &'a EventAtWebhook) -> Self {
        let absence = webhook.delivery.as_ref().err().copied();
        Self {
            webhook_id: webhook.webhook,
            name: &webhook.name,
            is_deleted: webhook.is_deleted,
            delivery: webhook.delivery.as_ref().ok().map(DeliveryView::of),
            reason: absence.map(Absence::as_str),
            explanation: absence.map(explanation),
        }
    }
}

impl DeliveryView {
    fn of(delivery: &EventDelivery) -> Self {
        Self {
            id: delivery.id,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            next_attempt_at: delivery.next_attempt_at,
            created_at: delivery.created_at,
            is_test: delivery.is_test,
        }
    }
}
