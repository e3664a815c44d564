//! Test deliveries: deliveries of a sample that an administrator asks for.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, Traceparent, WebhookId, WebhookState};
use serde_json::json;

use crate::{
    connect::{clock::sql::now, pool::Ledger},
    delivery::intake::{NewEvent, milliseconds},
    error::LedgerError,
    history::{Action, Actor, add_history},
    log::Delivery,
    outbox::add_to_outbox,
    refusal::Refusal,
    tables::{deliveries, events},
    webhook::lock,
};

impl Ledger {
    /// Stores a test delivery: an event of the actor's tenant, its delivery to one webhook, and the job in the outbox.
    pub async fn test_create(
        &self,
        actor: &Actor,
        event: &NewEvent,
        webhook: WebhookId,
    ) -> Result<Result<Delivery, Refusal>, LedgerError> {
        let create = || self.transaction("test_create", async |conn| create(conn, actor, event, webhook).await);
        match create().await {
            Err(error) if self.days_made(&error, &[milliseconds(event.timestamp)]).await? => create().await,
            created => created,
        }
    }
}

async fn create(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    event: &NewEvent,
    webhook: WebhookId,
) -> QueryResult<Result<Delivery, Refusal>> {
    let delivery = DeliveryId::derive(webhook, event.id, event.event_type, event.timestamp);
    match lock(conn, actor.tenant, webhook).await? {
        None => return Ok(Err(Refusal::NotFound)),
        Some(WebhookState::Active) => {}
        Some(_) => return Ok(Err(Refusal::Paused)),
    }
    // In the order in which the removal of a day locks its tables.
    let row = insert_delivery(conn, delivery, webhook, event).await?;
    insert_event(conn, event).await?;
    add_to_outbox(conn, delivery.as_uuid()).await?;
    let details = json!({"delivery_id": delivery, "event_type": event.event_type});
    add_history(conn, actor, webhook, Action::Tested, details).await?;
    Ok(Ok(row))
}

async fn insert_event(conn: &mut AsyncPgConnection, event: &NewEvent) -> QueryResult<()> {
    let row = (
        events::occurred_at.eq(milliseconds(event.timestamp)),
        events::id.eq(event.id.as_uuid()),
        events::tenant_id.eq(event.tenant.as_uuid()),
        events::event_type.eq(event.event_type.as_str()),
        events::body.eq(event.body.as_ref()),
        events::traceparent.eq(event.traceparent.as_ref().map(Traceparent::as_str)),
    );
    diesel::insert_into(events::table).values(row).execute(conn).await.map(|_| ())
}

async fn insert_delivery(
    conn: &mut AsyncPgConnection,
    id: DeliveryId,
    webhook: WebhookId,
    event: &NewEvent,
) -> QueryResult<Delivery> {
    let row = (
        deliveries::id.eq(id.as_uuid()),
        deliveries::webhook_id.eq(webhook.as_uuid()),
        deliveries::event_id.eq(event.id.as_uuid()),
        deliveries::event_type.eq(event.event_type.as_str()),
        deliveries::is_test.eq(true),
        deliveries::next_attempt_at.eq(now().nullable()),
    );
    diesel::insert_into(deliveries::table).values(row).returning(Delivery::as_returning()).get_result(conn).await
}
