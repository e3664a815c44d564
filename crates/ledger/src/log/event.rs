//! What became of an event, for each webhook of its tenant.

use std::{collections::HashMap, time::Duration};

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, EventId, EventType, TenantId, Timestamp, WebhookId};
use strum::IntoStaticStr;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::{clock::now, pool::Ledger},
    delivery::waiting::is_one_of,
    error::LedgerError,
    lists::load_known,
    log::Delivery,
    statement::sql,
    tables::{deliveries, webhooks},
    webhook::Existence,
};

/// The most events of one id that are shown. Its publisher may have used it with several types or times.
const MAX_EVENTS: usize = 10;
/// The most events of one id that are looked at, of all tenants together.
pub(super) const MAX_READ_EVENTS: i64 = 1_000;

/// A tenant's events of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEvents {
    /// Newest first.
    pub events: Vec<FoundEvent>,
    /// Whether these are all.
    pub is_complete: bool,
}

/// An event that is in the ledger, as at least one webhook wanted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEvent {
    /// Its type.
    pub event_type: EventType,
    /// When it fired, cut to milliseconds.
    pub occurred_at: OffsetDateTime,
    /// When it was stored.
    pub received_at: OffsetDateTime,
    /// What became of it at each webhook that the tenant has or had, oldest first.
    pub webhooks: Vec<EventAtWebhook>,
}

/// What became of an event at one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAtWebhook {
    /// The webhook.
    pub webhook: WebhookId,
    /// Its label.
    pub name: String,
    /// Whether it is deleted.
    pub is_deleted: bool,
    /// Whether nothing is sent until it is active again.
    pub is_paused: bool,
    /// Its delivery, or why there is none.
    pub delivery: Result<Delivery, Absence>,
}

/// Why a webhook has no delivery of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Absence {
    /// The webhook was deleted before the event arrived.
    Deleted,
    /// The webhook was registered after the event came.
    CreatedLater,
    /// The event is a test of another webhook.
    Test,
    /// The event is older than deliveries are kept.
    Expired,
    /// The webhook is not subscribed to the type.
    NotSubscribed,
    /// The webhook is subscribed to the type, and was not when the event came.
    SubscribedLater,
}

impl Absence {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::Deleted, Self::CreatedLater, Self::Test, Self::Expired, Self::NotSubscribed, Self::SubscribedLater];

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// True if some events of the id were not looked at, and one of the tenant's, if it has any: its time and type, and when it
/// was stored.
type FoundRow = (bool, Option<OffsetDateTime>, Option<String>, Option<OffsetDateTime>);

struct EventRow {
    occurred_at: OffsetDateTime,
    event_type: EventType,
    received_at: OffsetDateTime,
}

/// A webhook that the tenant has or had.
#[derive(Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(diesel::pg::Pg))]
struct WebhookRow {
    id: Uuid,
    name: String,
    events: Vec<String>,
    is_active: bool,
    created_at: OffsetDateTime,
    deleted_at: Option<OffsetDateTime>,
}

// One row at least. The limit comes before tenants and order, so that an id that is used without end is not read
// without end. It also leaves the planner no other index than the one by ids.
const FIND_EVENTS: &str = "WITH looked_at AS MATERIALIZED ( \
       SELECT occurred_at, event_type, received_at, tenant_id FROM events WHERE id = $1 LIMIT $3 \
     ) \
     SELECT counted.is_cut, own.* FROM (SELECT count(*) >= $3 AS is_cut FROM looked_at) AS counted \
     LEFT JOIN LATERAL ( \
       SELECT occurred_at, event_type, received_at FROM looked_at WHERE tenant_id = $2 \
       ORDER BY occurred_at DESC, event_type LIMIT $4 \
     ) AS own ON true";

impl Ledger {
    /// What became of the tenant's events of this id, the newest ten. Empty when the tenant has none: it was not stored,
    /// or retention took it. Deliveries of events that came before `keep` may be gone. Of an id that very many events
    /// have, of whatever tenant, only some are looked at.
    pub async fn event_find(&self, tenant: TenantId, id: EventId, keep: Duration) -> Result<FoundEvents, LedgerError> {
        let find = sql(FIND_EVENTS)
            .bind(id.as_uuid())
            .bind(tenant.as_uuid())
            .bind(MAX_READ_EVENTS)
            .bind(i64::try_from(MAX_EVENTS + 1).unwrap_or(i64::MAX));
        let read = self.run("event_find", async |conn| {
            let found: Vec<FoundRow> = find.values(conn).await?;
            let is_cut = found.iter().any(|(is_cut, ..)| *is_cut);
            let mut events: Vec<_> = found.into_iter().filter_map(EventRow::of).collect();
            let is_complete = !is_cut && events.len() <= MAX_EVENTS;
            events.truncate(MAX_EVENTS);
            if events.is_empty() {
                return Ok((Vec::new(), Vec::new(), is_complete, now(conn).await?));
            }
            let webhooks = all_of(conn, tenant).await?;
            let mut found = Vec::with_capacity(events.len());
            for event in events {
                let rows = event.deliveries(conn, id, &webhooks).await?;
                found.push((event, rows));
            }
            Ok((webhooks, found, is_complete, now(conn).await?))
        });
        let (webhooks, found, is_complete, now) = read.await?;
        let events = found.into_iter().map(|(event, rows)| event.read(&webhooks, rows, now - keep));
        Ok(FoundEvents { events: events.collect(), is_complete })
    }
}

/// Every webhook that the tenant has or had, oldest first, along one index.
async fn all_of(conn: &mut AsyncPgConnection, tenant: TenantId) -> QueryResult<Vec<WebhookRow>> {
    let of_tenant = webhooks::table.filter(webhooks::tenant_id.eq(tenant.as_uuid()));
    of_tenant.order((webhooks::tenant_id, webhooks::id)).select(WebhookRow::as_select()).load(conn).await
}

impl EventRow {
    /// `None` for an event type that only a newer version knows, too.
    fn of((_, occurred_at, event_type, received_at): FoundRow) -> Option<Self> {
        Some(Self { occurred_at: occurred_at?, event_type: event_type?.parse().ok()?, received_at: received_at? })
    }

    /// Its deliveries to these webhooks, by webhook. An id names the day's partition, so each is a look-up in there.
    async fn deliveries(
        &self,
        conn: &mut AsyncPgConnection,
        id: EventId,
        webhooks: &[WebhookRow],
    ) -> QueryResult<HashMap<Uuid, Delivery>> {
        let Ok(timestamp) = Timestamp::try_from(self.occurred_at) else { return Ok(HashMap::new()) };
        let id_at = |row: &WebhookRow| DeliveryId::derive(row.id.into(), id, self.event_type, timestamp).as_uuid();
        let ids: Vec<Uuid> = webhooks.iter().map(id_at).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let of_type = deliveries::event_type.eq(self.event_type.as_str());
        let query = deliveries::table.filter(is_one_of(&ids).and(of_type));
        let query = query.select((deliveries::webhook_id, Delivery::as_select()));
        Ok(load_known(query, conn).await?.into_iter().collect())
    }

    fn read(
        self,
        webhooks: &[WebhookRow],
        mut deliveries: HashMap<Uuid, Delivery>,
        kept_since: OffsetDateTime,
    ) -> FoundEvent {
        let Self { occurred_at, event_type, received_at } = self;
        let is_test = deliveries.values().any(|delivery| delivery.is_test);
        // Certain reasons come first: of a webhook's subscription, only the present one is known.
        let absence = |row: &WebhookRow| match row {
            _ if row.deleted_at.is_some_and(|deleted_at| deleted_at <= received_at) => Absence::Deleted,
            _ if row.created_at > received_at => Absence::CreatedLater,
            _ if is_test => Absence::Test,
            _ if received_at < kept_since => Absence::Expired,
            _ if row.events.iter().any(|name| name == event_type.as_str()) => Absence::SubscribedLater,
            _ => Absence::NotSubscribed,
        };
        let at_webhook = |row: &WebhookRow| {
            let is_deleted = row.deleted_at.is_some();
            let existence = if is_deleted { Existence::Deleted } else { Existence::Registered };
            let delivery = deliveries.remove(&row.id).map(|delivery| delivery.shown(existence));
            EventAtWebhook {
                webhook: row.id.into(),
                name: row.name.clone(),
                is_deleted,
                is_paused: !row.is_active && !is_deleted,
                delivery: delivery.ok_or_else(|| absence(row)),
            }
        };
        FoundEvent { event_type, occurred_at, received_at, webhooks: webhooks.iter().map(at_webhook).collect() }
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    /// An event's test delivery to another webhook.
    fn test_delivery(created_at: OffsetDateTime) -> Delivery {
        Delivery {
            id: Uuid::from_u128(1).into(),
            event: Uuid::from_u128(2).into(),
            event_type: EventType::QuoteClosed,
            is_test: true,
            state: domain::DeliveryState::Pending,
            attempts: 0,
            created_at,
            first_failed_at: None,
            next_attempt_at: None,
        }
    }

    #[test]
    fn the_reason_is_what_is_most_certain() {
        let received_at = datetime!(2026-03-01 12:00 UTC);
        let (hour, subscribed) = (Duration::HOUR, vec!["quote.closed".to_owned()]);
        let plain = || WebhookRow {
            id: Uuid::from_u128(3),
            name: String::new(),
            events: subscribed.clone(),
            created_at: received_at - hour,
            is_active: true,
            deleted_at: None,
        };
        let late = || WebhookRow { created_at: received_at + hour, ..plain() };
        let (kept, kept_not, is_test) = (received_at - hour, received_at + hour, true);
        for (webhook, kept_since, is_test, reason) in [
            (plain(), kept, !is_test, Absence::SubscribedLater),
            (WebhookRow { created_at: received_at, ..plain() }, kept, !is_test, Absence::SubscribedLater),
            (WebhookRow { deleted_at: Some(received_at + hour), ..plain() }, kept, !is_test, Absence::SubscribedLater),
            (WebhookRow { events: Vec::new(), ..plain() }, kept, !is_test, Absence::NotSubscribed),
            (WebhookRow { events: Vec::new(), ..plain() }, received_at, !is_test, Absence::NotSubscribed),
            (WebhookRow { events: Vec::new(), ..plain() }, kept_not, !is_test, Absence::Expired),
            (plain(), kept_not, is_test, Absence::Test),
            (late(), kept, is_test, Absence::CreatedLater),
            (WebhookRow { deleted_at: Some(received_at), ..plain() }, kept, is_test, Absence::Deleted),
        ] {
            let event = EventRow { occurred_at: received_at, event_type: EventType::QuoteClosed, received_at };
            let deliveries = is_test.then(|| (Uuid::from_u128(4), test_delivery(received_at))).into_iter().collect();
            let found = event.read(&[webhook], deliveries, kept_since);
            assert_eq!(found.webhooks[0].delivery, Err(reason));
        }
    }
}
