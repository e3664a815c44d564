//! Deliveries that an administrator asked for as a test.

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, EventId, WebhookId};
use time::OffsetDateTime;

use crate::{
    error::LedgerError,
    intake::{NewEvent, milliseconds},
    pool::Ledger,
    promises::{Promised, promise, take_back},
    tables::{deliveries, events},
    webhooks::{Active, lock},
};

/// What came of a request for a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The tenant has no such webhook.
    NotFound,
    /// The webhook is paused.
    Paused,
    /// The delivery is there and its job is promised.
    Begun(BegunTrial),
}

/// A test that can still be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunTrial {
    /// The delivery.
    pub delivery: DeliveryId,
    /// Its job.
    pub promised: Promised,
    event: EventId,
    occurred_at: OffsetDateTime,
}

impl Ledger {
    /// Stores a test: an event of the tenant's and its delivery to one webhook, with its job promised.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn trial_create(&self, event: &NewEvent, webhook: WebhookId) -> Result<Trial, LedgerError> {
        let delivery = DeliveryId::derive(webhook, event.id, event.timestamp);
        self.run(async |conn| {
            conn.transaction(async |conn| {
                match lock(conn, event.tenant, webhook).await? {
                    None => return Ok(Trial::NotFound),
                    Some(Active::No) => return Ok(Trial::Paused),
                    Some(Active::Yes) => {}
                }
                insert_event(conn, event).await?;
                insert_delivery(conn, delivery, webhook, event).await?;
                let promised = promise(conn, &[(delivery.as_uuid(), 0)]).await?;
                let occurred_at = milliseconds(event.timestamp);
                Ok(Trial::Begun(BegunTrial { delivery, promised, event: event.id, occurred_at }))
            })
            .await
        })
        .await
    }

    /// Takes a test back whose job could not be published. `false` when it was attempted all the same, or a
    /// resend has joined it.
    ///
    /// # Errors
    /// When the database does not answer: then the test stands, and its promise will be kept.
    pub async fn trial_undo(&self, begun: &BegunTrial) -> Result<bool, LedgerError> {
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let untried = deliveries::id.eq(begun.delivery.as_uuid()).and(deliveries::attempts.eq(0));
                let row = deliveries::table.filter(untried).select(deliveries::id).for_update();
                // The row first, as everywhere: then nobody can join any more.
                let found: Option<uuid::Uuid> = row.first(conn).await.optional()?;
                let Some(id) = found else { return Ok(false) };
                if !take_back(conn, &begun.promised).await? {
                    return Ok(false);
                }
                diesel::delete(deliveries::table.find(id)).execute(conn).await?;
                let event = events::occurred_at.eq(begun.occurred_at).and(events::id.eq(begun.event.as_uuid()));
                diesel::delete(events::table.filter(event)).execute(conn).await?;
                Ok(true)
            })
            .await
        })
        .await
    }
}

async fn insert_event(conn: &mut AsyncPgConnection, event: &NewEvent) -> QueryResult<()> {
    let row = (
        events::occurred_at.eq(milliseconds(event.timestamp)),
        events::id.eq(event.id.as_uuid()),
        events::tenant_id.eq(event.tenant.as_uuid()),
        events::event_type.eq(event.event_type.as_str()),
        events::body.eq(event.body.as_ref()),
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
