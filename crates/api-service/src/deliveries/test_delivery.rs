//! `POST /api/v1/webhooks/{id}/test/`: test deliveries of a sample.

use domain::{Event, EventId, EventType, TenantId, Timestamp, WebhookId, catalogue};
use ledger::{Delivery, NewEvent};
use serde_json::{Value, value::to_raw_value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::accepted;
use crate::{
    http::{
        ApiError, Body, Caller, Checked, Fields, FromBody, HandlerResult, Id, Members, Need, Trace, fields::event_type,
    },
    state::Rules,
    webhooks,
};

/// The requested event type, if any.
pub(crate) struct Wish(Option<EventType>);

impl FromBody for Wish {
    const NEED: Need = Need::Optional;

    fn read(members: Members, _: &Rules) -> Checked<Self> {
        Fields::check(&members, |fields| Some(Self(fields.optional("event_type", event_type))))
    }
}

/// Sends a sample of a subscribed event type.
pub(crate) async fn post(
    caller: Caller,
    Id(id): Id<WebhookId>,
    trace: Trace,
    Body(Wish(wish)): Body<Wish>,
) -> HandlerResult {
    Ok(accepted(id, &send(&caller, id, wish, trace).await?, None))
}

/// Sends a realistic sample of a subscribed event type: the outbox relay publishes its job. The sample is signed,
/// retried and logged like any event, but marked, and changes neither the webhook's health nor its statistics. Its trace
/// is that of the request.
pub(crate) async fn send(
    caller: &Caller,
    id: WebhookId,
    wish: Option<EventType>,
    trace: Trace,
) -> Result<Delivery, ApiError> {
    let webhook = webhooks::find(caller, id).await?;
    let event_type = subscribed(wish, &webhook.settings.events)?;
    let event = sample(event_type, caller.admin.tenant, trace)?;
    let delivery = caller.ledger.test_create(&caller.admin, &event, id).await.map_err(ApiError::of_change)??;
    caller.wakes.jobs.notify_one();
    tracing::info!(delivery = %delivery.id, webhook = %id, tenant = %caller.admin.tenant, "a test is sent");
    Ok(delivery)
}

/// The requested type, else the webhook's first.
fn subscribed(wish: Option<EventType>, events: &[EventType]) -> Result<EventType, ApiError> {
    let found = events.iter().copied().find(|event_type| wish.is_none_or(|wish| wish == *event_type));
    found.ok_or_else(|| {
        let known = events.iter().map(|event_type| event_type.as_str()).collect::<Vec<_>>().join(", ");
        ApiError::field(
            "event_type",
            "not_subscribed",
            format!("must be one that the webhook is subscribed to: {known}"),
        )
    })
}

/// A sample event that fires now.
fn sample(event_type: EventType, tenant: TenantId, Trace(traceparent): Trace) -> Result<NewEvent, ApiError> {
    // Like upstream services, without white space between tokens.
    let sample = serde_json::from_str::<Value>(catalogue::sample(event_type));
    let data = sample.and_then(|sample| to_raw_value(&sample)).map_err(ApiError::unexpected)?;
    let timestamp = Timestamp::try_from(OffsetDateTime::now_utc()).map_err(ApiError::unexpected)?;
    let id = EventId::from(Uuid::now_v7());
    let body = domain::envelope(&Event { id, event_type, tenant, timestamp, data: &data });
    Ok(NewEvent { id, timestamp, tenant, event_type, body: body.into(), traceparent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_of_the_wished_type_or_else_of_the_first() {
        let events = [EventType::ReturnNoteCreated, EventType::QuoteClosed];
        assert_eq!(subscribed(None, &events).unwrap(), EventType::ReturnNoteCreated);
        assert_eq!(subscribed(Some(EventType::QuoteClosed), &events).unwrap(), EventType::QuoteClosed);
        let error = subscribed(Some(EventType::QuoteAccepted), &events).unwrap_err();
        assert!(matches!(&error, ApiError::Fields(violations) if violations[0].code == "not_subscribed"));
    }
}
