//! Jobs that are promised to the queue: made durable with the change that asks for them, published afterwards, forgotten
//! once the broker has confirmed them. What its promiser did not publish, because it died, another one leases and does.

use std::time::Duration;

use diesel::{
    prelude::*,
    sql_types::{Int4, SmallInt, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, EventId, EventType, Job, Timestamp, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    error::LedgerError,
    intake::{NewEvent, milliseconds},
    pool::Ledger,
    tables::{deliveries, events, promised_jobs},
};

/// How long the one who promised, or leased, has to publish.
pub const LEASE: Duration = Duration::from_secs(30);

batch_statement! {
    LeasePromises -> (SqlUuid, SmallInt);
    lease { at: OffsetDateTime => Timestamptz, until: OffsetDateTime => Timestamptz, most: i32 => Int4 }
    ", due AS MATERIALIZED ( \
        SELECT delivery_id FROM promised_jobs WHERE leased_until <= (SELECT at FROM lease) \
        ORDER BY leased_until, delivery_id LIMIT (SELECT most FROM lease) FOR UPDATE SKIP LOCKED \
      ), leased AS ( \
        UPDATE promised_jobs AS p SET leased_until = (SELECT until FROM lease) \
        FROM due WHERE p.delivery_id = due.delivery_id RETURNING p.delivery_id \
      ) SELECT d.id, (d.attempts + 1)::smallint FROM leased \
        CROSS JOIN LATERAL (SELECT id, attempts FROM deliveries WHERE id = leased.delivery_id) AS d"
}

impl Ledger {
    /// Takes up to `most` promises whose lease has ended; they are this caller's for [`LEASE`].
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn promises_lease(&self, now: OffsetDateTime, most: u16) -> Result<Vec<Job>, LedgerError> {
        let statement = LeasePromises { at: vec![now], until: vec![now + LEASE], most: vec![most.into()] };
        let rows: Vec<(Uuid, i16)> = self.run(async |conn| statement.load(conn).await).await?;
        let job = |(id, attempt): (Uuid, i16)| Job {
            delivery: id.into(),
            attempt: u16::try_from(attempt).unwrap_or_default(),
        };
        Ok(rows.into_iter().map(job).collect())
    }

    /// Forgets promises: the broker has confirmed their jobs.
    ///
    /// # Errors
    /// When the database does not answer; the jobs are published once more then, and found stale.
    pub async fn promises_keep(&self, ids: &[DeliveryId]) -> Result<(), LedgerError> {
        let ids: Vec<_> = ids.iter().map(|id| id.as_uuid()).collect();
        let query = diesel::delete(promised_jobs::table.filter(promised_jobs::delivery_id.eq_any(ids)));
        self.run(async |conn| query.execute(conn).await.map(|_| ())).await
    }

    /// Stores a test: an event and its delivery to one webhook, with its job promised.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn test_create(&self, event: &NewEvent, webhook: WebhookId) -> Result<DeliveryId, LedgerError> {
        let id = DeliveryId::derive(webhook, event.id, event.timestamp);
        self.run(async |conn| {
            conn.transaction(async |conn| {
                insert_event(conn, event).await?;
                insert_test(conn, id, webhook, event.id, event.event_type).await?;
                promise(conn, &[id.as_uuid()], OffsetDateTime::now_utc() + LEASE).await
            })
            .await
        })
        .await?;
        Ok(id)
    }

    /// Takes a test back whose job could not be published.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn test_undo(&self, id: DeliveryId, event: EventId, timestamp: Timestamp) -> Result<(), LedgerError> {
        self.run(async |conn| {
            conn.transaction(async |conn| {
                diesel::delete(promised_jobs::table.find(id.as_uuid())).execute(conn).await?;
                let untried = deliveries::table.filter(deliveries::id.eq(id.as_uuid()).and(deliveries::attempts.eq(0)));
                if diesel::delete(untried).execute(conn).await? > 0 {
                    diesel::delete(events::table.find((milliseconds(timestamp), event.as_uuid())))
                        .execute(conn)
                        .await?;
                }
                Ok(())
            })
            .await
        })
        .await
    }
}

/// Promises the jobs of deliveries; a promise that is there already is leased anew.
pub(crate) async fn promise(conn: &mut AsyncPgConnection, ids: &[Uuid], until: OffsetDateTime) -> QueryResult<()> {
    let rows: Vec<_> =
        ids.iter().map(|id| (promised_jobs::delivery_id.eq(*id), promised_jobs::leased_until.eq(until))).collect();
    diesel::insert_into(promised_jobs::table)
        .values(rows)
        .on_conflict(promised_jobs::delivery_id)
        .do_update()
        .set(promised_jobs::leased_until.eq(until))
        .execute(conn)
        .await
        .map(|_| ())
}

async fn insert_event(conn: &mut AsyncPgConnection, event: &NewEvent) -> QueryResult<()> {
    let row = (
        events::occurred_at.eq(milliseconds(event.timestamp)),
        events::id.eq(event.id.as_uuid()),
        events::tenant_id.eq(event.tenant.as_uuid()),
        events::event_type.eq(event.event_type.as_str()),
        events::body.eq(&event.body),
    );
    diesel::insert_into(events::table).values(row).execute(conn).await.map(|_| ())
}

async fn insert_test(
    conn: &mut AsyncPgConnection,
    id: DeliveryId,
    webhook: WebhookId,
    event: EventId,
    event_type: EventType,
) -> QueryResult<()> {
    let row = (
        deliveries::id.eq(id.as_uuid()),
        deliveries::webhook_id.eq(webhook.as_uuid()),
        deliveries::event_id.eq(event.as_uuid()),
        deliveries::event_type.eq(event_type.as_str()),
        deliveries::is_test.eq(true),
    );
    diesel::insert_into(deliveries::table).values(row).execute(conn).await.map(|_| ())
}
