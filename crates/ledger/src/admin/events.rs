//! What became of an event, for each webhook of its tenant.

use std::time::Duration;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Int4, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, EventType, TenantId, WebhookId};
use strum::IntoStaticStr;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{batch::batch_statement, clock::now, error::LedgerError, hot::look_up::read_state, pool::Ledger};

/// The most events of one id that are shown. Its publisher may have used it with several types or times.
const SHOWN: usize = 10;

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
    /// Its delivery, or why there is none.
    pub delivery: Result<EventDelivery, Absence>,
}

/// The delivery of an event to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Its state. What waits for a deleted webhook counts as cancelled.
    pub state: DeliveryState,
    /// Attempts made.
    pub attempts: u16,
    /// When the next attempt is due, if one is.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// Whether it is a test delivery.
    pub is_test: bool,
}

/// Why a webhook has no delivery of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Absence {
    /// The webhook was deleted before the event came.
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
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, QueryableByName)]
struct EventRow {
    #[diesel(sql_type = Timestamptz)]
    occurred_at: OffsetDateTime,
    #[diesel(sql_type = Text)]
    event_type: String,
    #[diesel(sql_type = Timestamptz)]
    received_at: OffsetDateTime,
}

// The OFFSET leaves the planner no other index than the one by ids, whose matches are few.
const FIND: &str = "SELECT * FROM ( \
       SELECT occurred_at, event_type, received_at FROM events WHERE id = $1 AND tenant_id = $2 OFFSET 0 \
     ) AS found ORDER BY occurred_at DESC, event_type LIMIT $3";

batch_statement! {
    FindAtWebhooks -> (
        Int4,
        (SqlUuid, Text, Bool, Timestamptz, Nullable<Timestamptz>),
        (
            Nullable<SqlUuid>, Nullable<Text>, Nullable<SmallInt>, Nullable<Timestamptz>, Nullable<Timestamptz>,
            Nullable<Bool>,
        ),
    );
    asker { tenant: Uuid => SqlUuid }
    event {
        number: i32 => Int4, event_type: String => Text, event_id: Uuid => SqlUuid, moment: Uuid => SqlUuid,
        occurred_at: OffsetDateTime => Timestamptz,
    };
    include_str!("event_at_webhooks.sql")
}

/// An event's number, a webhook, and its delivery if there is one.
type AtWebhookRow = (i32, WebhookRow, DeliveryRow);
/// Id, name, whether it is subscribed to the type, when it was created, when it was deleted.
type WebhookRow = (Uuid, String, bool, OffsetDateTime, Option<OffsetDateTime>);
/// Id, state, attempts, when the next one is due, when it was created, whether it is a test.
type DeliveryRow =
    (Option<Uuid>, Option<String>, Option<i16>, Option<OffsetDateTime>, Option<OffsetDateTime>, Option<bool>);

impl Ledger {
    /// What became of the tenant's events of this id, the newest ten. Empty when the tenant has none: it was not stored,
    /// or retention took it. Deliveries of events that came before `keep` may be gone.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn event_find(&self, tenant: TenantId, id: EventId, keep: Duration) -> Result<FoundEvents, LedgerError> {
        let most = i64::try_from(SHOWN + 1).unwrap_or(i64::MAX);
        let find = diesel::sql_query(FIND)
            .bind::<SqlUuid, _>(id.as_uuid())
            .bind::<SqlUuid, _>(tenant.as_uuid())
            .bind::<BigInt, _>(most);
        let (mut found, now): (Vec<EventRow>, _) =
            self.run(async |conn| Ok((find.load(conn).await?, now(conn).await?))).await?;
        let is_complete = found.len() <= SHOWN;
        found.truncate(SHOWN);
        let statement = at_webhooks(tenant, id, &found);
        let rows: Vec<AtWebhookRow> = match found.is_empty() {
            true => Vec::new(),
            false => self.run(async |conn| statement.load(conn).await).await?,
        };
        let events = found.iter().zip(0..).map(|(event, number)| {
            let rows = rows.iter().filter(|(of, ..)| *of == number);
            event.read(&rows.collect::<Vec<_>>(), now - keep)
        });
        Ok(FoundEvents { events: events.collect::<Result<_, _>>()?, is_complete })
    }
}

fn at_webhooks(tenant: TenantId, id: EventId, events: &[EventRow]) -> FindAtWebhooks {
    let mut statement = FindAtWebhooks { tenant: vec![tenant.as_uuid()], ..FindAtWebhooks::default() };
    for (event, number) in events.iter().zip(0..) {
        let millis = u64::try_from(event.occurred_at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        statement.number.push(number);
        statement.event_type.push(event.event_type.clone());
        statement.event_id.push(id.as_uuid());
        statement.moment.push(DeliveryId::bound_at_millis(millis));
        statement.occurred_at.push(event.occurred_at);
    }
    statement
}

impl EventRow {
    fn read(&self, rows: &[&AtWebhookRow], kept_since: OffsetDateTime) -> Result<FoundEvent, LedgerError> {
        let is_test = rows.iter().any(|(_, _, delivery)| delivery.5 == Some(true));
        let at_webhook = |(_, webhook, delivery): &&AtWebhookRow| {
            let (id, name, is_subscribed, created_at, deleted_at) = webhook;
            let circumstances = Circumstances {
                received_at: self.received_at,
                kept_since,
                is_test,
                created_at: *created_at,
                deleted_at: *deleted_at,
                is_subscribed: *is_subscribed,
            };
            let delivery = read_delivery(delivery, deleted_at.is_some())?;
            Ok(EventAtWebhook {
                webhook: (*id).into(),
                name: name.clone(),
                is_deleted: deleted_at.is_some(),
                delivery: delivery.ok_or_else(|| circumstances.absence()),
            })
        };
        Ok(FoundEvent {
            event_type: self.event_type.parse().map_err(|_| unreadable("events.event_type"))?,
            occurred_at: self.occurred_at,
            received_at: self.received_at,
            webhooks: rows.iter().map(at_webhook).collect::<Result<_, LedgerError>>()?,
        })
    }
}

/// What tells why a webhook has no delivery.
#[derive(Clone, Copy)]
struct Circumstances {
    received_at: OffsetDateTime,
    /// Deliveries of events that came before may be gone.
    kept_since: OffsetDateTime,
    /// Whether the event is a test of some webhook.
    is_test: bool,
    created_at: OffsetDateTime,
    deleted_at: Option<OffsetDateTime>,
    is_subscribed: bool,
}

impl Circumstances {
    /// What is certain comes first: a webhook's subscription is only known as it is now.
    fn absence(self) -> Absence {
        if self.deleted_at.is_some_and(|deleted_at| deleted_at <= self.received_at) {
            Absence::Deleted
        } else if self.created_at > self.received_at {
            Absence::CreatedLater
        } else if self.is_test {
            Absence::Test
        } else if self.received_at < self.kept_since {
            Absence::Expired
        } else if self.is_subscribed {
            Absence::SubscribedLater
        } else {
            Absence::NotSubscribed
        }
    }
}

/// The delivery, if there is one. What waits for a deleted webhook counts as cancelled, as in the log.
fn read_delivery(row: &DeliveryRow, is_deleted: bool) -> Result<Option<EventDelivery>, LedgerError> {
    let (Some(id), Some(state), Some(attempts), next_attempt_at, Some(created_at), Some(is_test)) = row else {
        return Ok(None);
    };
    let state = read_state(state).map_err(unreadable)?;
    let is_over = is_deleted && state.is_waiting();
    Ok(Some(EventDelivery {
        id: (*id).into(),
        state: if is_over { DeliveryState::Cancelled } else { state },
        attempts: u16::try_from(*attempts).map_err(|_| unreadable("deliveries.attempts"))?,
        next_attempt_at: next_attempt_at.filter(|_| !is_over),
        created_at: *created_at,
        is_test: *is_test,
    }))
}

const fn unreadable(column: &'static str) -> LedgerError {
    LedgerError::Unreadable { column }
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn the_reason_is_what_is_most_certain() {
        let received_at = datetime!(2026-03-01 12:00 UTC);
        let hour = Duration::HOUR;
        let plain = Circumstances {
            received_at,
            kept_since: received_at - hour,
            is_test: false,
            created_at: received_at - hour,
            deleted_at: None,
            is_subscribed: true,
        };
        let late = Circumstances { created_at: received_at + hour, ..plain };
        for (circumstances, reason) in [
            (plain, Absence::SubscribedLater),
            (Circumstances { created_at: received_at, ..plain }, Absence::SubscribedLater),
            (Circumstances { deleted_at: Some(received_at + hour), ..plain }, Absence::SubscribedLater),
            (Circumstances { is_subscribed: false, ..plain }, Absence::NotSubscribed),
            (Circumstances { kept_since: received_at, is_subscribed: false, ..plain }, Absence::NotSubscribed),
            (Circumstances { kept_since: received_at + hour, is_subscribed: false, ..plain }, Absence::Expired),
            (Circumstances { kept_since: received_at + hour, is_test: true, ..plain }, Absence::Test),
            (Circumstances { is_test: true, ..late }, Absence::CreatedLater),
            (Circumstances { deleted_at: Some(received_at), is_test: true, ..plain }, Absence::Deleted),
        ] {
            assert_eq!(circumstances.absence(), reason, "{:?}", circumstances.deleted_at);
        }
    }
}
