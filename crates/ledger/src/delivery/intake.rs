//! Stores events and their deliveries: one statement per batch (crates/README.md, the picture).

use std::collections::BTreeMap;

use bytes::Bytes;
use diesel::sql_types::{Binary, Bool, Int4, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, EventId, EventType, TenantId, Timestamp, Traceparent};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::{Blob, batch_statement},
    connect::pool::Ledger,
    error::LedgerError,
    partitions::Week,
};

/// An event to be stored.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The publisher's id.
    pub id: EventId,
    /// When it fired.
    pub timestamp: Timestamp,
    /// The tenant.
    pub tenant: TenantId,
    /// The event type.
    pub event_type: EventType,
    /// The envelope's exact bytes.
    pub body: Bytes,
    /// The trace that it belongs to. That of a duplicate is not stored.
    pub traceparent: Option<Traceparent>,
}

/// The result of storing a batch of events, which are named by their places in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The new deliveries that need a job, each with its event. A duplicate makes none.
    pub deliveries: Vec<(usize, DeliveryId)>,
    /// The new deliveries to paused webhooks, each with its event: they are skipped.
    pub skipped: Vec<(usize, DeliveryId)>,
    /// The events that no webhook of their tenant wants. They are not stored.
    pub unwanted: Vec<usize>,
    /// The events that are not stored yet, as they and the others make too many deliveries for one statement.
    pub left: Vec<usize>,
}

batch_statement! {
    StoreEvents -> (Nullable<SqlUuid>, Bool, Int4, Nullable<Int4>);
    pair {
        tenant: Uuid => SqlUuid, event_type: String => Text, first: i32 => Int4, last: i32 => Int4,
        below: Option<i32> => Nullable<Int4>,
    }
    event as arrays {
        occurred_at: OffsetDateTime => Timestamptz, event_id: Uuid => SqlUuid, id_from: Uuid => SqlUuid,
        body: Blob => Binary, traceparent: Option<String> => Nullable<Text>,
    };
    include_str!("store_events.sql")
}

/// A new delivery, whether it is skipped, and the number of its event. Or no delivery, whether events of a pair are left
/// (else no webhook wants them), and the first and last number of these.
type StoredRow = (Option<Uuid>, bool, i32, Option<i32>);

batch_statement! {
    FindUntried -> (Int4, SqlUuid), of week;
    event {
        number: i32 => Int4, tenant: Uuid => SqlUuid, event_type: String => Text, event_id: Uuid => SqlUuid, id_from: Uuid => SqlUuid
    };
    include_str!("find_untried.sql")
}

impl Ledger {
    /// Stores the events that some webhook wants, and their deliveries, in one transaction: at least one event, and as
    /// many as make 20,000 deliveries at most. Idempotent: what is already there stays as it is.
    ///
    /// # Errors
    /// When the database does not answer. Then all is stored, or nothing.
    pub async fn events_store(&self, events: &[NewEvent]) -> Result<Stored, LedgerError> {
        self.events_store_of(events, None).await
    }

    /// The same, possibly without any event: those of a tenant and event type are left if they make `below` deliveries
    /// or more together. So no other event waits for a statement with very many deliveries.
    ///
    /// # Errors
    /// When the database does not answer. Then all is stored, or nothing.
    pub async fn events_store_below(&self, events: &[NewEvent], below: u32) -> Result<Stored, LedgerError> {
        self.events_store_of(events, Some(i32::try_from(below.max(1)).unwrap_or(i32::MAX))).await
    }

    async fn events_store_of(&self, events: &[NewEvent], below: Option<i32>) -> Result<Stored, LedgerError> {
        let (numbered, statement) = numbered(events, below);
        let rows = match self.store(&statement).await {
            Err(error) if self.days_made(&error, &statement.occurred_at).await? => self.store(&statement).await?,
            done => done?,
        };
        Ok(stored(rows, &numbered))
    }

    async fn store(&self, statement: &StoreEvents) -> Result<Vec<StoredRow>, LedgerError> {
        self.run("store", async |conn| statement.load(conn).await).await
    }

    /// The deliveries of these events, to any webhook, that still wait for their first attempt, each with the place of its
    /// event.
    pub async fn deliveries_untried(&self, events: &[&NewEvent]) -> Result<Vec<(usize, DeliveryId)>, LedgerError> {
        let mut statements: BTreeMap<Week, FindUntried> = BTreeMap::new();
        for (event, number) in events.iter().zip(0..) {
            let id_from = DeliveryId::bound_at_millis(event.timestamp.unix_millis());
            let week = Week::of(id_from.into());
            let statement = statements.entry(week).or_insert_with(|| FindUntried { week, ..Default::default() });
            statement.number.push(number);
            statement.tenant.push(event.tenant.as_uuid());
            statement.event_type.push(event.event_type.to_string());
            statement.event_id.push(event.id.as_uuid());
            statement.id_from.push(id_from);
        }
        let mut found = Vec::new();
        for statement in statements.values() {
            let rows: Vec<(i32, Uuid)> =
                self.run("deliveries_untried", async |conn| statement.load(conn).await).await?;
            found.extend(rows.into_iter().filter_map(|(number, id)| Some((usize::try_from(number).ok()?, id.into()))));
        }
        Ok(found)
    }
}

/// The events' indexes in the order of pairs, times and ids, and the statement that stores the events.
fn numbered(events: &[NewEvent], below: Option<i32>) -> (Vec<usize>, StoreEvents) {
    let pair = |event: &NewEvent| (event.tenant, event.event_type);
    let mut sorted: Vec<_> = events.iter().enumerate().collect();
    sorted.sort_unstable_by_key(|(_, event)| (pair(event), milliseconds(event.timestamp), event.id));
    let (mut statement, mut number) = (StoreEvents::default(), 0);
    for group in sorted.chunk_by(|(_, one), (_, next)| pair(one) == pair(next)) {
        let (tenant, event_type) = pair(group[0].1);
        statement.tenant.push(tenant.as_uuid());
        statement.event_type.push(event_type.to_string());
        statement.first.push(number + 1);
        statement.below.push(below);
        for (_, event) in group {
            number += 1;
            statement.occurred_at.push(milliseconds(event.timestamp));
            statement.event_id.push(event.id.as_uuid());
            statement.id_from.push(DeliveryId::bound_at_millis(event.timestamp.unix_millis()));
            statement.body.push(Blob(event.body.clone()));
            statement.traceparent.push(event.traceparent.as_ref().map(Traceparent::to_string));
        }
        statement.last.push(number);
    }
    (sorted.into_iter().map(|(index, _)| index).collect(), statement)
}

fn stored(rows: Vec<StoredRow>, numbered: &[usize]) -> Stored {
    let event = |number: i32| numbered.get(usize::try_from(number - 1).ok()?).copied();
    let mut stored = Stored::default();
    for (delivery, is_skipped_or_left, number, last) in rows {
        match delivery {
            Some(id) => {
                let new = if is_skipped_or_left { &mut stored.skipped } else { &mut stored.deliveries };
                new.extend(event(number).map(|event| (event, id.into())));
            }
            None => {
                let events = if is_skipped_or_left { &mut stored.left } else { &mut stored.unwanted };
                events.extend((number..=last.unwrap_or(number)).filter_map(event));
            }
        }
    }
    stored
}

/// The event's timestamp cut to milliseconds, as its delivery ids carry it.
pub(crate) fn milliseconds(timestamp: Timestamp) -> OffsetDateTime {
    let time = timestamp.as_datetime();
    time.replace_millisecond(time.millisecond()).unwrap_or(time)
}
