//! The log of deliveries, as administrators read it.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, EventType, TenantId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    due::occurred_at,
    error::LedgerError,
    pool::Ledger,
    tables::{attempts, deliveries, events},
    webhooks::{OwnWebhook, Page},
};

/// A delivery in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, which is also `X-Service-Webhook-Id`.
    pub id: DeliveryId,
    /// The event.
    pub event: EventId,
    /// Which of the seven.
    pub event_type: EventType,
    /// Whether an administrator asked for it as a test.
    pub is_test: bool,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts made.
    pub attempts: u16,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When its event fired, cut to milliseconds.
    pub occurred_at: OffsetDateTime,
    /// When the current run of the schedule began to fail.
    pub first_failed_at: Option<OffsetDateTime>,
    /// When the next attempt is due.
    pub next_attempt_at: Option<OffsetDateTime>,
}

/// One POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1.
    pub attempt: u16,
    /// Where it was sent.
    pub url: String,
    /// The `t` of the signature that was sent. Of attempts that an older version made, the second in which they began.
    pub signed_at: OffsetDateTime,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub elapsed: Duration,
    /// The outcome class.
    pub outcome: String,
    /// The HTTP status, if one came.
    pub status: Option<u16>,
    /// The first bytes of the answer's body.
    pub answer_head: Vec<u8>,
    /// The error in words.
    pub error: Option<String>,
}

/// Which deliveries to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFilter {
    /// In this state.
    pub state: Option<DeliveryState>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Made at this time or later.
    pub created_from: Option<OffsetDateTime>,
    /// Made before this time.
    pub created_until: Option<OffsetDateTime>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = deliveries, check_for_backend(diesel::pg::Pg))]
struct Row {
    id: Uuid,
    event_id: Uuid,
    event_type: String,
    is_test: bool,
    state: String,
    attempts: i16,
    created_at: OffsetDateTime,
    first_failed_at: Option<OffsetDateTime>,
    next_attempt_at: Option<OffsetDateTime>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = attempts, check_for_backend(diesel::pg::Pg))]
struct AttemptRow {
    attempt: i16,
    url: String,
    signed_at: Option<OffsetDateTime>,
    started_at: OffsetDateTime,
    duration_us: i64,
    outcome: String,
    status: Option<i16>,
    answer_head: Vec<u8>,
    error: Option<String>,
}

impl Ledger {
    /// A webhook's deliveries, newest event first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_list(
        &self,
        webhook: OwnWebhook,
        filter: DeliveryFilter,
        page: Page<DeliveryId>,
    ) -> Result<Vec<Delivery>, LedgerError> {
        let mut query = deliveries::table
            .filter(deliveries::webhook_id.eq(webhook.id().as_uuid()))
            .order(deliveries::id.desc())
            .limit(page.limit.into())
            .select(Row::as_select())
            .into_boxed();
        if let Some(after) = page.after {
            query = query.filter(deliveries::id.lt(after.as_uuid()));
        }
        if let Some(state) = filter.state {
            query = query.filter(deliveries::state.eq(state.as_str()));
        }
        if let Some(event_type) = filter.event_type {
            query = query.filter(deliveries::event_type.eq(event_type.as_str()));
        }
        if let Some(from) = filter.created_from {
            query = query.filter(deliveries::created_at.ge(from));
        }
        if let Some(until) = filter.created_until {
            query = query.filter(deliveries::created_at.lt(until));
        }
        let rows: Vec<Row> = self.run(async |conn| query.load(conn).await).await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// One of a webhook's deliveries.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_find(&self, webhook: OwnWebhook, id: DeliveryId) -> Result<Option<Delivery>, LedgerError> {
        let query = deliveries::table
            .filter(deliveries::id.eq(id.as_uuid()).and(deliveries::webhook_id.eq(webhook.id().as_uuid())))
            .select(Row::as_select());
        let row: Option<Row> = self.run(async |conn| query.first(conn).await.optional()).await?;
        row.map(Row::read).transpose()
    }

    /// The attempts of a delivery, first to last.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn attempt_list(&self, id: DeliveryId) -> Result<Vec<Attempt>, LedgerError> {
        let query = attempts::table
            .filter(attempts::delivery_id.eq(id.as_uuid()))
            .order(attempts::attempt)
            .select(AttemptRow::as_select());
        let rows: Vec<AttemptRow> = self.run(async |conn| query.load(conn).await).await?;
        Ok(rows.into_iter().map(AttemptRow::read).collect())
    }

    /// The exact body of a tenant's delivery.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn body_find(&self, tenant: TenantId, delivery: &Delivery) -> Result<Option<Vec<u8>>, LedgerError> {
        let event_type = delivery.event_type.as_str();
        let key = (occurred_at(delivery.id), delivery.event.as_uuid(), tenant.as_uuid(), event_type);
        let query = events::table.find(key).select(events::body);
        self.run(async |conn| query.first(conn).await.optional()).await
    }
}

impl Row {
    fn read(self) -> Result<Delivery, LedgerError> {
        let unreadable = |column| LedgerError::Unreadable { column };
        let id = self.id.into();
        Ok(Delivery {
            id,
            event: self.event_id.into(),
            event_type: self.event_type.parse().map_err(|_| unreadable("deliveries.event_type"))?,
            is_test: self.is_test,
            state: self.state.parse().map_err(|_| unreadable("deliveries.state"))?,
            attempts: u16::try_from(self.attempts).map_err(|_| unreadable("deliveries.attempts"))?,
            created_at: self.created_at,
            occurred_at: occurred_at(id),
            first_failed_at: self.first_failed_at,
            next_attempt_at: self.next_attempt_at,
        })
    }
}

impl AttemptRow {
    fn read(self) -> Attempt {
        Attempt {
            attempt: u16::try_from(self.attempt).unwrap_or_default(),
            url: self.url,
            signed_at: self.signed_at.unwrap_or_else(|| whole_seconds(self.started_at)),
            started_at: self.started_at,
            elapsed: Duration::from_micros(u64::try_from(self.duration_us).unwrap_or_default()),
            outcome: self.outcome,
            status: self.status.and_then(|status| u16::try_from(status).ok()),
            answer_head: self.answer_head,
            error: self.error,
        }
    }
}

fn whole_seconds(moment: OffsetDateTime) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(moment.unix_timestamp()).unwrap_or(moment)
}
