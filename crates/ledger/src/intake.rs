//! Events in, deliveries out: one statement per batch (DESIGN 1).

use bytes::Bytes;
use diesel::sql_types::{Binary, Int4, Nullable, Text, Timestamptz, Uuid as SqlUuid};
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
    /// Which of the seven.
    pub event_type: EventType,
    /// The envelope's exact bytes.
    pub body: Bytes,
}

/// What came of events that were to be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The deliveries that are new, and their events.
    pub deliveries: Vec<(EventId, DeliveryId)>,
    /// The events that no active webhook of their tenant wants, by their index: they are not stored.
    pub unwanted: Vec<usize>,
}

/// [`DeliveryId::derive`] as SQL, for a `webhook` and event number `n`, whose moment (`$7`) is
/// [`DeliveryId::bound_at_millis`]: the hash goes behind the milliseconds, and the bits of version (8) and variant
/// (RFC 9562) into the hash.
macro_rules! derived_id {
    () => {
        "encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit( \
            overlay(uuid_send(($7)[n]) PLACING substring(sha256(uuid_send(webhook) || uuid_send(($6)[n])) FOR 10) FROM 7), \
            55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid"
    };
}

// The events come grouped by tenant and type, so that each pair is looked up once; a pair's are those numbered from `first`
// to `last`. Their columns stay arrays ($5 to $8; the CTE of theirs only gives them types), as a row source would copy the
// bodies. Rows are inserted in the order of pairs, numbers and webhooks, so that two batches with the same events wait for
// one another and do not deadlock (unless ids come once more with other types): a set-returning function in a list of
// columns leaves the planner no other order, and the `OFFSET` no other way than to look a pair up.
batch_statement! {
    StoreEvents -> (Nullable<SqlUuid>, Nullable<SqlUuid>, Nullable<Int4>, Nullable<Int4>);
    pair { tenant: Uuid => SqlUuid, event_type: String => Text, first: i32 => Int4, last: i32 => Int4 }
    event {
        occurred_at: OffsetDateTime => Timestamptz, event_id: Uuid => SqlUuid, moment: Uuid => SqlUuid,
        body: Blob => Binary,
    };
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
            SELECT ", derived_id!(), ", webhook, ($6)[n], event_type \
            FROM (SELECT *, unnest(webhooks) AS webhook \
                  FROM (SELECT *, generate_series(first, last) AS n FROM wanted) AS event) AS delivery \
            ON CONFLICT DO NOTHING RETURNING id, event_id \
          ) \
          SELECT id, event_id, NULL, NULL FROM made \
          UNION ALL \
          SELECT NULL, NULL, first, last FROM wanted WHERE webhooks = '{}'"
    )
}

/// A new delivery and its event, or the numbers of a pair's events that nobody wants.
type StoredRow = (Option<Uuid>, Option<Uuid>, Option<i32>, Option<i32>);

batch_statement! {
    FindUntried -> (SqlUuid,);
    asked { first: Uuid => SqlUuid, beyond: Uuid => SqlUuid, event: Uuid => SqlUuid };
    " SELECT found.id FROM asked CROSS JOIN LATERAL \
        (SELECT id FROM deliveries WHERE id >= asked.first AND id < asked.beyond AND event_id = asked.event \
         AND state = 'pending' AND attempts = 0 OFFSET 0) AS found"
}

impl Ledger {
    /// Stores the events that somebody wants, and their deliveries, in one transaction. What is already there stays as it
    /// is.
    ///
    /// # Errors
    /// When the database does not answer; nothing is stored then, or all is.
    pub async fn events_store(&self, events: &[NewEvent]) -> Result<Stored, LedgerError> {
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
        let rows: Vec<StoredRow> = self.run(async |conn| statement.load(conn).await).await?;
        let mut stored = Stored::default();
        for row in rows {
            if let (Some(id), Some(event), ..) = row {
                stored.deliveries.push((event.into(), id.into()));
            } else if let (.., Some(first), Some(last)) = row {
                let places = (first..=last).filter_map(|number| usize::try_from(number - 1).ok());
                stored.unwanted.extend(places.filter_map(|place| Some(sorted.get(place)?.0)));
            }
        }
        Ok(stored)
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
