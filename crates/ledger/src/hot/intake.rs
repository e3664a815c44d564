//! Stores events and their deliveries: one statement per batch (crates/README.md, the picture).

use bytes::Bytes;
use diesel::{
    QueryableByName,
    sql_types::{Binary, Int4, Nullable, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, EventId, EventType, TenantId, Timestamp};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::{Blob, batch_statement},
    error::LedgerError,
    pool::Ledger,
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
}

/// What became of a batch of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The new deliveries and their events. A duplicate makes none.
    pub deliveries: Vec<(EventId, DeliveryId)>,
    /// Indexes of the events that no active webhook of their tenant wants. They are not stored.
    pub unwanted: Vec<usize>,
}

/// [`DeliveryId::derive`] as SQL: the milliseconds of `moment` (a [`DeliveryId::bound_at_millis`]), then bytes of the
/// SHA-256 of `source`. The bits of the version (8) and the variant (RFC 9562) are set in the hash.
macro_rules! derived_id {
    ($moment:literal, $source:literal) => {
        concat!(
            "encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(overlay(uuid_send(",
            $moment,
            ") PLACING substring(sha256(",
            $source,
            ") FOR 10) FROM 7), 55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid"
        )
    };
}

// Events are grouped by pair of tenant and type, so that each pair is looked up once. A pair's events are numbered from
// `first` to `last`. Their columns stay arrays ($5 to $8), as a row source would copy the bodies; the CTE `event` only
// gives them types. Rows are inserted in the order of pairs, numbers and webhooks, so that two batches with the same
// events wait for one another and do not deadlock: set-returning functions in lists of columns leave the planner no
// other order. The `OFFSET` leaves it no other way than to look a pair up.
macro_rules! store_events {
    ($which_deliveries:expr) => {
        concat!(
            ", wanted AS MATERIALIZED ( \
                SELECT pair.*, ARRAY( \
                    SELECT id FROM (SELECT id FROM webhooks WHERE tenant_id = pair.tenant AND deleted_at IS NULL AND is_active \
                                    AND pair.event_type = ANY (events) OFFSET 0) AS found ORDER BY id \
                ) AS webhooks FROM pair \
              ), stored AS ( \
                INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                SELECT ($5)[n], ($6)[n], tenant, event_type, ($8)[n] \
                FROM (SELECT *, generate_series(first, last) AS n FROM wanted WHERE webhooks <> '{}') AS event \
                ON CONFLICT DO NOTHING \
              ), made AS ( \
                INSERT INTO deliveries (id, webhook_id, event_id, event_type) \
                SELECT ",
            derived_id!("($7)[n]", "uuid_send(webhook) || uuid_send(($6)[n]) || convert_to(event_type, 'UTF8')"),
            ", webhook, ($6)[n], event_type \
                FROM (SELECT *, unnest(webhooks) AS webhook \
                      FROM (SELECT *, generate_series(first, last) AS n FROM wanted) AS event) AS delivery ",
            $which_deliveries,
            " ON CONFLICT DO NOTHING RETURNING id, event_id \
              ) \
              SELECT id, event_id, NULL, NULL FROM made \
              UNION ALL \
              SELECT NULL, NULL, first, last FROM wanted WHERE webhooks = '{}'"
        )
    };
}

macro_rules! store_events_statement {
    ($(#[$doc:meta])* $name:ident, $which_deliveries:expr) => {
        batch_statement! {
            $(#[$doc])*
            $name -> (Nullable<SqlUuid>, Nullable<SqlUuid>, Nullable<Int4>, Nullable<Int4>);
            pair { tenant: Uuid => SqlUuid, event_type: String => Text, first: i32 => Int4, last: i32 => Int4 }
            event {
                occurred_at: OffsetDateTime => Timestamptz, event_id: Uuid => SqlUuid, moment: Uuid => SqlUuid,
                body: Blob => Binary,
            };
            store_events!($which_deliveries)
        }
    };
}

store_events_statement!(StoreEvents, "");

store_events_statement!(
    /// For events that may have deliveries with ids derived without the event type: such a delivery keeps its id.
    StoreOldEvents,
    concat!(
        "WHERE NOT EXISTS (SELECT FROM deliveries AS old WHERE old.event_type = delivery.event_type AND old.id = ",
        derived_id!("($7)[n]", "uuid_send(webhook) || uuid_send(($6)[n])"),
        ")"
    )
);

impl From<StoreEvents> for StoreOldEvents {
    fn from(events: StoreEvents) -> Self {
        let StoreEvents { tenant, event_type, first, last, occurred_at, event_id, moment, body } = events;
        Self { tenant, event_type, first, last, occurred_at, event_id, moment, body }
    }
}

/// The statement for a batch: `Old` when some events may have deliveries with ids derived without the event type.
enum Store {
    Events(StoreEvents),
    Old(StoreOldEvents),
}

/// A new delivery and its event, or the first and last number of a pair's events that no webhook wants.
type StoredRow = (Option<Uuid>, Option<Uuid>, Option<i32>, Option<i32>);

// An event's deliveries have one of few ids: of the webhooks that its tenant has or had, with and without the type.
batch_statement! {
    FindUntried -> (SqlUuid,);
    event {
        tenant: Uuid => SqlUuid, event_type: String => Text, event_id: Uuid => SqlUuid, moment: Uuid => SqlUuid
    };
    concat!(
        " SELECT found.id FROM event \
          CROSS JOIN LATERAL (SELECT id AS webhook FROM webhooks WHERE tenant_id = event.tenant OFFSET 0) AS any_webhook \
          CROSS JOIN LATERAL unnest(ARRAY[",
        derived_id!("moment", "uuid_send(webhook) || uuid_send(event_id) || convert_to(event_type, 'UTF8')"),
        ", ",
        derived_id!("moment", "uuid_send(webhook) || uuid_send(event_id)"),
        "]) AS candidate(id) \
          CROSS JOIN LATERAL (SELECT id FROM deliveries WHERE deliveries.id = candidate.id AND \
            deliveries.event_type = event.event_type AND state = 'pending' AND attempts = 0 LIMIT 1) AS found"
    )
}

#[derive(QueryableByName)]
struct Until {
    #[diesel(sql_type = Timestamptz)]
    until: OffsetDateTime,
}

impl Ledger {
    /// Stores the events that some webhook wants, and their deliveries, in one transaction. Idempotent: what is already
    /// there stays as it is.
    ///
    /// # Errors
    /// When the database does not answer. Then all is stored, or nothing.
    pub async fn events_store(&self, events: &[NewEvent]) -> Result<Stored, LedgerError> {
        let (numbered, statement) = numbered(events);
        let moments = statement.occurred_at.clone();
        let until = self.ids_without_types_until().await?;
        let statement = match moments.iter().all(|moment| *moment > until) {
            true => Store::Events(statement),
            false => Store::Old(statement.into()),
        };
        let rows = match self.store(&statement).await {
            Err(error) if self.days_made(&error, &moments).await? => self.store(&statement).await?,
            done => done?,
        };
        Ok(stored(rows, &numbered))
    }

    async fn store(&self, statement: &Store) -> Result<Vec<StoredRow>, LedgerError> {
        match statement {
            Store::Events(statement) => self.run(async |conn| statement.load(conn).await).await,
            Store::Old(statement) => self.run(async |conn| statement.load(conn).await).await,
        }
    }

    /// The deliveries of these events, to any webhook, that still wait for their first attempt.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn deliveries_untried(&self, events: &[&NewEvent]) -> Result<Vec<DeliveryId>, LedgerError> {
        let mut statement = FindUntried::default();
        for event in events {
            statement.tenant.push(event.tenant.as_uuid());
            statement.event_type.push(event.event_type.to_string());
            statement.event_id.push(event.id.as_uuid());
            statement.moment.push(DeliveryId::bound_at_millis(event.timestamp.unix_millis()));
        }
        let rows: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(rows.into_iter().map(|(id,)| id.into()).collect())
    }

    /// The latest time of events that may have deliveries with ids derived without the event type. It never changes.
    async fn ids_without_types_until(&self) -> Result<OffsetDateTime, LedgerError> {
        let read = "SELECT greatest(without_types_until, '0001-01-01 00:00 UTC') AS until FROM delivery_ids";
        let until = self.ids_without_types_until.get_or_try_init(|| async {
            let row: Until = self.run(async |conn| diesel::sql_query(read).get_result(conn).await).await?;
            Ok::<_, LedgerError>(row.until)
        });
        until.await.copied()
    }
}

/// The events' indexes in the order of pairs, times and ids, and the statement that stores the events.
fn numbered(events: &[NewEvent]) -> (Vec<usize>, StoreEvents) {
    let pair = |event: &NewEvent| (event.tenant, event.event_type);
    let mut sorted: Vec<_> = events.iter().enumerate().collect();
    sorted.sort_unstable_by_key(|(_, event)| (pair(event), milliseconds(event.timestamp), event.id));
    let (mut statement, mut number) = (StoreEvents::default(), 0);
    for group in sorted.chunk_by(|(_, one), (_, next)| pair(one) == pair(next)) {
        let (tenant, event_type) = pair(group[0].1);
        statement.tenant.push(tenant.as_uuid());
        statement.event_type.push(event_type.to_string());
        statement.first.push(number + 1);
        for (_, event) in group {
            number += 1;
            statement.occurred_at.push(milliseconds(event.timestamp));
            statement.event_id.push(event.id.as_uuid());
            statement.moment.push(DeliveryId::bound_at_millis(event.timestamp.unix_millis()));
            statement.body.push(Blob(event.body.clone()));
        }
        statement.last.push(number);
    }
    (sorted.into_iter().map(|(index, _)| index).collect(), statement)
}

fn stored(rows: Vec<StoredRow>, numbered: &[usize]) -> Stored {
    let mut stored = Stored::default();
    for row in rows {
        if let (Some(id), Some(event), ..) = row {
            stored.deliveries.push((event.into(), id.into()));
        } else if let (.., Some(first), Some(last)) = row {
            let places = (first..=last).filter_map(|number| usize::try_from(number - 1).ok());
            stored.unwanted.extend(places.filter_map(|place| numbered.get(place).copied()));
        }
    }
    stored
}

/// The event's timestamp cut to milliseconds, as its delivery ids carry it.
pub(crate) fn milliseconds(timestamp: Timestamp) -> OffsetDateTime {
    let moment = timestamp.as_datetime();
    moment.replace_millisecond(moment.millisecond()).unwrap_or(moment)
}
