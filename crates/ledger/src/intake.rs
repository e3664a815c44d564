//! Events in, deliveries out: one read and one statement per batch (DESIGN 1).

use bytes::Bytes;
use diesel::sql_types::{Binary, Int4, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, EventId, EventType, TenantId, Timestamp, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::{Blob, batch_statement},
    error::LedgerError,
    pool::Ledger,
};

/// An active webhook that wants one of the asked pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The index of the pair in the question.
    pub pair: usize,
    /// The webhook.
    pub webhook: WebhookId,
}

/// An event to be stored.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The publisher's id.
    pub id: EventId,
    /// When it fired.
    pub timestamp: Timestamp,
    /// The tenant.
    pub tenant: TenantId,
    /// Which of the seven.
    pub event_type: EventType,
    /// The envelope's exact bytes.
    pub body: Bytes,
}

/// A delivery to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery {
    /// The id derived from webhook and event.
    pub id: DeliveryId,
    /// To which webhook.
    pub webhook: WebhookId,
    /// Which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: EventType,
}

impl NewDelivery {
    /// The delivery of an event to a webhook.
    #[must_use]
    pub fn of(event: &NewEvent, webhook: WebhookId) -> Self {
        let id = DeliveryId::derive(webhook, event.id, event.timestamp);
        Self { id, webhook, event: event.id, event_type: event.event_type }
    }
}

batch_statement! {
    FindSubscribers -> (Int4, SqlUuid);
    pair { pair: i32 => Int4, tenant: Uuid => SqlUuid, event_type: String => Text };
    " SELECT pair.pair, found.id FROM pair CROSS JOIN LATERAL \
        (SELECT id FROM webhooks WHERE tenant_id = pair.tenant AND deleted_at IS NULL AND is_active \
         AND pair.event_type = ANY (events) OFFSET 0) AS found"
}

// The rows are in the order of their keys, so that two batches with the same events wait for one another and never
// deadlock.
batch_statement! {
    StoreEvents -> (SqlUuid,);
    event {
        occurred_at: OffsetDateTime => Timestamptz, event_id: Uuid => SqlUuid, tenant: Uuid => SqlUuid,
        event_type: String => Text, body: Blob => Binary,
    }
    delivery {
        delivery_id: Uuid => SqlUuid, webhook_id: Uuid => SqlUuid, of_event: Uuid => SqlUuid, of_type: String => Text,
    };
    ", stored AS ( \
        INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
        SELECT occurred_at, event_id, tenant, event_type, body FROM event \
        ON CONFLICT DO NOTHING \
      ) \
      INSERT INTO deliveries (id, webhook_id, event_id, event_type) \
      SELECT delivery_id, webhook_id, of_event, of_type FROM delivery \
      ON CONFLICT DO NOTHING RETURNING id"
}

batch_statement! {
    FindUntried -> (SqlUuid,);
    asked { first: Uuid => SqlUuid, beyond: Uuid => SqlUuid, event: Uuid => SqlUuid };
    " SELECT found.id FROM asked CROSS JOIN LATERAL \
        (SELECT id FROM deliveries WHERE id >= asked.first AND id < asked.beyond AND event_id = asked.event \
         AND state = 'pending' AND attempts = 0 OFFSET 0) AS found"
}

impl Ledger {
    /// The active webhooks that want each (tenant, event type) pair.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn subscribers_find(&self, pairs: &[(TenantId, EventType)]) -> Result<Vec<Subscriber>, LedgerError> {
        let mut statement = FindSubscribers::default();
        for (index, (tenant, event_type)) in (0..).zip(pairs) {
            statement.pair.push(index);
            statement.tenant.push(tenant.as_uuid());
            statement.event_type.push(event_type.to_string());
        }
        let rows: Vec<(i32, Uuid)> = self.run(async |conn| statement.load(conn).await).await?;
        let subscriber = |(pair, id): (i32, Uuid)| Subscriber {
            pair: usize::try_from(pair).unwrap_or_default(),
            webhook: id.into(),
        };
        Ok(rows.into_iter().map(subscriber).collect())
    }

    /// Stores events and their deliveries in one transaction. What is already there stays as it is: the ids of the
    /// deliveries that are new are returned.
    ///
    /// # Errors
    /// When the database does not answer; nothing is stored then, or all is.
    pub async fn events_store(
        &self,
        events: &[NewEvent],
        deliveries: &[NewDelivery],
    ) -> Result<Vec<DeliveryId>, LedgerError> {
        // Here, as the server would copy each body to sort it.
        let mut events: Vec<_> = events.iter().map(|event| (milliseconds(event.timestamp), event)).collect();
        events.sort_unstable_by_key(|(occurred_at, event)| (*occurred_at, event.id, event.tenant));
        let mut deliveries: Vec<_> = deliveries.iter().collect();
        deliveries.sort_unstable_by_key(|delivery| delivery.id);
        let mut statement = StoreEvents::default();
        for (occurred_at, event) in events {
            statement.occurred_at.push(occurred_at);
            statement.event_id.push(event.id.as_uuid());
            statement.tenant.push(event.tenant.as_uuid());
            statement.event_type.push(event.event_type.to_string());
            statement.body.push(Blob(event.body.clone()));
        }
        for delivery in deliveries {
            statement.delivery_id.push(delivery.id.as_uuid());
            statement.webhook_id.push(delivery.webhook.as_uuid());
            statement.of_event.push(delivery.event.as_uuid());
            statement.of_type.push(delivery.event_type.to_string());
        }
        let rows: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(rows.into_iter().map(|(id,)| id.into()).collect())
    }

    /// The deliveries of these events that still wait for their first attempt, to whichever webhook.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn deliveries_untried(&self, events: &[(EventId, Timestamp)]) -> Result<Vec<DeliveryId>, LedgerError> {
        let mut statement = FindUntried::default();
        for (event, timestamp) in events {
            // All deliveries of one millisecond lie side by side.
            statement.first.push(DeliveryId::bound_at_millis(timestamp.unix_millis()));
            statement.beyond.push(DeliveryId::bound_at_millis(timestamp.unix_millis() + 1));
            statement.event.push(event.as_uuid());
        }
        let rows: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(rows.into_iter().map(|(id,)| id.into()).collect())
    }
}

/// The event's timestamp cut to milliseconds: what its delivery ids carry too.
pub(crate) fn milliseconds(timestamp: Timestamp) -> OffsetDateTime {
    let moment = timestamp.as_datetime();
    moment.replace_millisecond(moment.millisecond()).unwrap_or(moment)
}
