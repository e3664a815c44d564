//! The log of deliveries, as administrators read it.

pub(crate) mod event;
mod query;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use diesel::{pg::Pg, prelude::*};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, EventType, OutcomeClass, TenantId};
use time::OffsetDateTime;
use uuid::Uuid;

use self::query::{LogRow, LogSource, LogStep};
use crate::{
    connect::pool::Ledger,
    delivery::bodies::with_bodies,
    error::LedgerError,
    lists::{Page, load_known},
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

/// Which deliveries to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFilter {
    /// In this state.
    pub state: Option<DeliveryState>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Created at this time or later.
    pub created_from: Option<OffsetDateTime>,
    /// Created before this time.
    pub created_until: Option<OffsetDateTime>,
}

impl DeliveryFilter {
    /// Whether every delivery matches, apart from its state.
    const fn takes_all(&self) -> bool {
        let Self { event_type, created_from, created_until, .. } = self;
        event_type.is_none() && created_from.is_none() && created_until.is_none()
    }
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPage {
    /// At most as many as were asked for; fewer, or none, when few of the rows read match.
    pub deliveries: Vec<Delivery>,
    /// The cursor: the next page begins after it. `None` at the end of the log.
    pub next: Option<DeliveryId>,
}

/// How many attempts are shown, the newest. Each resend may add as many as the schedule has steps.
const MAX_ATTEMPTS: i64 = 200;
/// How far an event's timestamp may lie ahead of its delivery's creation.
const MAX_TIME_AHEAD: time::Duration = time::Duration::DAY;

impl Attempt {
    /// The duration of the attempt.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.duration_us).unwrap_or_default())
    }
}

impl Ledger {
    /// Lists a webhook's deliveries, newest event first. The search ends after about `budget`, so a page may be short.
    /// It is the last one only if its `next` is `None`.
    pub async fn delivery_list(
        &self,
        webhook: OwnWebhook,
        filter: DeliveryFilter,
        page: Page<DeliveryId>,
        budget: Duration,
    ) -> Result<DeliveryPage, LedgerError> {
        let Some((source, states)) = search(webhook.existence, filter.state) else {
            return Ok(DeliveryPage { deliveries: Vec::new(), next: None });
        };
        let (began, limit, of) = (Instant::now(), usize::from(page.limit), webhook.id().as_uuid());
        let (mut deliveries, mut after) = (Vec::new(), first_after(page.after, filter.created_until));
        loop {
            let needed = limit + 1 - deliveries.len();
            // One statement, so that rows that come or go meanwhile are neither read twice nor skipped.
            let step = LogStep::new((of, source), after, states, &filter, needed);
            let rows: Vec<LogRow> = self.run("delivery_list", async |conn| step.load(conn).await).await?;
            let end = rows.last().and_then(|row| row.is_end.then_some(row.id));
            let found = rows.into_iter().filter_map(|row| row.delivery).take(needed);
            deliveries.extend(found.map(|delivery| delivery.shown(webhook.existence)));
            if deliveries.len() > limit {
                deliveries.truncate(limit);
                return Ok(DeliveryPage { next: deliveries.last().map(|last| last.id), deliveries });
            }
            match end {
                None => return Ok(DeliveryPage { deliveries, next: None }),
                Some(end) if began.elapsed() >= budget => {
                    return Ok(DeliveryPage { deliveries, next: Some(end.into()) });
                }
                Some(end) => after = end,
            }
        }
    }

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
    pub async fn bodies_find(&self, deliveries: &[Delivery]) -> Result<BTreeSet<DeliveryId>, LedgerError> {
        let ids: Vec<Uuid> = deliveries.iter().map(|delivery| delivery.id.as_uuid()).collect();
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

/// Where to search, and which states to match there. A deleted webhook's waiting deliveries count as cancelled, whether
/// or not they are marked so yet. `None` when nothing can match.
fn search(existence: Existence, state: Option<DeliveryState>) -> Option<(LogSource, Option<&'static [&'static str]>)> {
    use DeliveryState::{Cancelled, Dropped, Pending, Retrying, Skipped, Succeeded};
    Some(match (existence, state) {
        (_, None) => (LogSource::Log, None),
        (Existence::Cancelling | Existence::Deleted, Some(Pending | Retrying)) => return None,
        (Existence::Cancelling, Some(Cancelled)) => (LogSource::Log, Some(&["pending", "retrying", "cancelled"])),
        (_, Some(Pending)) => (LogSource::Log, Some(&["pending"])),
        (_, Some(Succeeded)) => (LogSource::Log, Some(&["succeeded"])),
        (_, Some(state @ (Retrying | Dropped | Cancelled | Skipped))) => (LogSource::Unsuccessful(state), None),
    })
}

/// The id after which matches can begin: a delivery is created at most [`MAX_TIME_AHEAD`] before its event's timestamp.
fn first_after(cursor: Option<DeliveryId>, created_until: Option<OffsetDateTime>) -> Uuid {
    let cursor = cursor.map_or(Uuid::max(), DeliveryId::as_uuid);
    let Some(latest) = created_until.and_then(|until| until.checked_add(MAX_TIME_AHEAD)) else { return cursor };
    cursor.min(DeliveryId::bound_at(latest))
}
