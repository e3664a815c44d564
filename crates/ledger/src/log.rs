//! The log of deliveries, as administrators read it.

pub(crate) mod event;
mod query;
mod search;

use std::{collections::BTreeSet, time::Duration};

use diesel::{pg::Pg, prelude::*};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, EventType, OutcomeClass, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    delivery::bodies::with_bodies,
    error::LedgerError,
    lists::load_known,
    tables::{attempts, deliveries, events},
    webhook::{Existence, OwnWebhook},
};

/// A delivery in the log.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries, check_for_backend(Pg))]
pub struct Delivery {
    /// Its id, which is also `X-Service-Webhook-Id`.
    pub id: DeliveryId,
    /// The event.
    #[diesel(column_name = event_id)]
    pub event: EventId,
    /// The event type.
    pub event_type: EventType,
    /// Whether it is a test delivery that an administrator asked for.
    pub is_test: bool,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts made.
    #[diesel(deserialize_as = i16)]
    pub attempts: u16,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// When the current run of the schedule first failed.
    pub first_failed_at: Option<OffsetDateTime>,
    /// When the next attempt is due, if one is.
    pub next_attempt_at: Option<OffsetDateTime>,
}

impl Delivery {
    /// When its event fired, cut to milliseconds.
    pub fn occurred_at(&self) -> OffsetDateTime {
        self.id.occurred_at()
    }

    /// The delivery as it is shown: what waits for a deleted webhook counts as cancelled.
    pub(crate) fn shown(mut self, existence: Existence) -> Self {
        if existence != Existence::Registered && self.state.is_waiting() {
            self.state = DeliveryState::Cancelled;
            self.next_attempt_at = None;
        }
        self
    }
}

/// One attempt: a POST.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = attempts, check_for_backend(Pg))]
pub struct Attempt {
    /// Its number, from 1.
    #[diesel(deserialize_as = i16)]
    pub attempt: u16,
    /// The URL it was sent to.
    pub url: String,
    /// The `t` of the signature that was sent.
    pub signed_at: OffsetDateTime,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// The duration of the attempt, in microseconds.
    pub duration_us: i64,
    /// The outcome class.
    pub outcome: OutcomeClass,
    /// The HTTP status, if one came.
    pub status: Option<i16>,
    /// The first bytes of the answer's body.
    pub response_body: Vec<u8>,
    /// The failure message, if any.
    pub error: Option<String>,
}

/// The last attempt of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// The outcome class.
    pub outcome: OutcomeClass,
    /// The HTTP status, if one came.
    pub status: Option<i16>,
    /// The failure message, if any.
    pub error: Option<String>,
    /// When it began.
    pub started_at: OffsetDateTime,
}

impl From<&Attempt> for LastAttempt {
    fn from(attempt: &Attempt) -> Self {
        let Attempt { outcome, status, started_at, .. } = *attempt;
        Self { outcome, status, error: attempt.error.clone(), started_at }
    }
}

/// A delivery in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDelivery {
    /// Its webhook.
    pub webhook: WebhookId,
    /// The delivery.
    pub delivery: Delivery,
    /// Its last attempt, if one was made.
    pub last_attempt: Option<LastAttempt>,
}

/// Which deliveries to list.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// In one of these states; in any if there is none.
    pub states: Vec<DeliveryState>,
    /// Whose last attempt ended so.
    pub outcome: Option<OutcomeClass>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Of this event.
    pub event: Option<EventId>,
    /// Tests, or no tests.
    pub is_test: Option<bool>,
    /// Of events that fired at this time or later, to the millisecond.
    pub occurred_after: Option<OffsetDateTime>,
    /// Of events that fired before this time.
    pub occurred_before: Option<OffsetDateTime>,
    /// With this text in the body, byte by byte.
    pub contains: Option<String>,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPage {
    /// At most as many as were asked for; fewer, or none, when few of the rows read match.
    pub deliveries: Vec<ListedDelivery>,
    /// The cursor: the next page begins after it. `None` at the end of the log.
    pub next: Option<DeliveryId>,
}

impl DeliveryPage {
    /// The time down to which events were looked at, perhaps with its last millisecond in part. `None` at the end of the log.
    pub fn searched_until(&self) -> Option<OffsetDateTime> {
        self.next.map(|next| next.occurred_at() + time::Duration::MILLISECOND)
    }
}

/// How many attempts are shown, the newest. Each resend may add as many as the schedule has steps.
const MAX_ATTEMPTS: i64 = 200;

impl Attempt {
    /// The duration of the attempt.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.duration_us).unwrap_or_default())
    }
}

impl Ledger {
    /// One of a webhook's deliveries.
    pub async fn delivery_find(&self, webhook: OwnWebhook, id: DeliveryId) -> Result<Option<Delivery>, LedgerError> {
        let query = deliveries::table
            .filter(deliveries::id.eq(id.as_uuid()).and(deliveries::webhook_id.eq(webhook.id().as_uuid())))
            .select(Delivery::as_select());
        let found = self.run("delivery_find", async |conn| query.first(conn).await.optional()).await?;
        Ok(found.map(|delivery| delivery.shown(webhook.existence)))
    }

    /// A delivery's attempts, oldest first, at most the newest 200.
    pub async fn attempt_list(&self, id: DeliveryId) -> Result<Vec<Attempt>, LedgerError> {
        let query = attempts::table
            .filter(attempts::delivery_id.eq(id.as_uuid()))
            .order(attempts::attempt.desc())
            .limit(MAX_ATTEMPTS)
            .select(Attempt::as_select());
        let mut attempts = self.run("attempt_list", async |conn| load_known(query, conn).await).await?;
        attempts.reverse();
        Ok(attempts)
    }

    /// The webhook of one of the tenant's deliveries.
    pub async fn delivery_webhook(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<OwnWebhook>, LedgerError> {
        let query = deliveries::table.filter(deliveries::id.eq(id.as_uuid())).select(deliveries::webhook_id);
        let found: Option<Uuid> = self.run("delivery_webhook", async |conn| query.first(conn).await.optional()).await?;
        let Some(webhook) = found else { return Ok(None) };
        self.webhook_known(tenant, webhook.into()).await
    }

    /// Finds those of the deliveries whose bodies the ledger has: the others cannot be sent again.
    pub async fn bodies_find(&self, deliveries: &[ListedDelivery]) -> Result<BTreeSet<DeliveryId>, LedgerError> {
        let ids: Vec<Uuid> = deliveries.iter().map(|listed| listed.delivery.id.as_uuid()).collect();
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let found = self.transaction("bodies_find", async |conn| with_bodies(conn, &ids).await).await?;
        Ok(found.into_iter().map(DeliveryId::from).collect())
    }

    /// The exact body of a tenant's delivery.
    pub async fn body_find(&self, tenant: TenantId, delivery: &Delivery) -> Result<Option<Vec<u8>>, LedgerError> {
        let event_type = delivery.event_type.as_str();
        let key = (delivery.id.occurred_at(), delivery.event.as_uuid(), tenant.as_uuid(), event_type);
        let query = events::table.find(key).select(events::body);
        self.run("body_find", async |conn| query.first(conn).await.optional()).await
    }
}
