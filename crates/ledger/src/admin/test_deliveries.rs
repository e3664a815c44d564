//! Test deliveries: deliveries of a sample that an administrator asks for.

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, Traceparent, WebhookId};
use serde_json::json;
use uuid::Uuid;

use crate::{
    admin::{
        history::{Action, Actor, add_history, remove_history},
        outbox::{OutboxBatch, add_to_outbox, take_back},
        webhooks::{Active, lock},
    },
    error::LedgerError,
    hot::intake::{NewEvent, milliseconds},
    pool::Ledger,
    tables::{deliveries, events},
};

/// The result of a request for a test delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestDelivery {
    /// The tenant has no such webhook.
    NotFound,
    /// The webhook is paused.
    Paused,
    /// The delivery is stored and its job is in the outbox.
    Begun(BegunTest),
}

/// A test delivery that can still be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunTest {
    /// The delivery.
    pub delivery: DeliveryId,
    /// Its job.
    pub batch: OutboxBatch,
    /// Its entry in the webhook's history.
    history: Uuid,
}

impl Ledger {
    /// Stores a test delivery: an event of the actor's tenant, its delivery to one webhook, and the job in the outbox.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn test_create(
        &self,
        actor: &Actor,
        event: &NewEvent,
        webhook: WebhookId,
    ) -> Result<TestDelivery, LedgerError> {
        match self.run(async |conn| create(conn, actor, event, webhook).await).await {
            Err(error) if self.days_made(&error, &[milliseconds(event.timestamp)]).await? => {
                self.run(async |conn| create(conn, actor, event, webhook).await).await
            }
            done => done,
        }
    }

    /// Takes a test delivery back whose job could not be published: cancels it. Its row stays, as the job may be on the
    /// queue all the same, and must not be taken for one whose delivery was lost. Returns `false` when it was attempted
    /// all the same, or a resend has joined it.
    ///
    /// # Errors
    /// When the database does not answer. The delivery stands then, and its job is published later.
    pub async fn test_undo(&self, begun: &BegunTest) -> Result<bool, LedgerError> {
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let untried = deliveries::id.eq(begun.delivery.as_uuid()).and(deliveries::attempts.eq(0));
                let row = deliveries::table.filter(untried).select(deliveries::id).for_update();
                // The delivery is locked before the outbox entry, as everywhere. Then nobody can join.
                let found: Option<uuid::Uuid> = row.first(conn).await.optional()?;
                let Some(id) = found else { return Ok(false) };
                if !take_back(conn, &begun.batch).await? {
                    return Ok(false);
                }
                let cancel = diesel::update(deliveries::table.find(id)).set(deliveries::state.eq("cancelled"));
                cancel.execute(conn).await?;
                remove_history(conn, begun.history).await?;
                Ok(true)
            })
            .await
        })
        .await
    }
}

async fn create(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    event: &NewEvent,
    webhook: WebhookId,
) -> QueryResult<TestDelivery> {
    let delivery = DeliveryId::derive(webhook, event.id, event.event_type, event.timestamp);
    conn.transaction(async |conn| {
        match lock(conn, actor.tenant, webhook).await? {
            None => return Ok(TestDelivery::NotFound),
            Some(Active::No) => return Ok(TestDelivery::Paused),
            Some(Active::Yes) => {}
        }
        insert_event(conn, event).await?;
        insert_delivery(conn, delivery, webhook, event).await?;
        let batch = add_to_outbox(conn, &[(delivery.as_uuid(), 0)]).await?;
        let details = json!({"delivery_id": delivery, "event_type": event.event_type});
        let history = add_history(conn, actor, webhook, Action::Tested, details).await?;
        Ok(TestDelivery::Begun(BegunTest { delivery, batch, history }))
    })
    .await
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
) -> QueryResult<()> {
    let row = (
        deliveries::id.eq(id.as_uuid()),
        deliveries::webhook_id.eq(webhook.as_uuid()),
        deliveries::event_id.eq(event.id.as_uuid()),
        deliveries::event_type.eq(event.event_type.as_str()),
        deliveries::is_test.eq(true),
    );
    diesel::insert_into(deliveries::table).values(row).execute(conn).await.map(|_| ())
}
