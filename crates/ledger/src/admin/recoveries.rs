//! Recoveries: every dropped delivery of a webhook since a time is sent again, in steps. Another process can go on.

use std::time::Duration;

use diesel::{
    QueryableByName,
    prelude::*,
    sql_types::{Bool, Double, Int4, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::{DeliveryId, DeliveryState, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::{
        outbox::add_to_outbox,
        resends::{begin, first_kept},
        tasks::{STEP_LEASE, STEP_LOCKS, Step},
        webhooks::{OwnWebhook, lock},
    },
    error::LedgerError,
    pool::Ledger,
    tables::{deliveries, recoveries, unsuccessful_deliveries},
};

/// A recovery and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = recoveries, check_for_backend(diesel::pg::Pg))]
pub struct Recovery {
    /// Its id.
    pub id: Uuid,
    /// It recovers deliveries whose event fired at this time or later.
    pub since: OffsetDateTime,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was done.
    pub finished_at: Option<OffsetDateTime>,
    /// How many deliveries have begun a fresh run.
    pub resent: i32,
}

/// A running recovery, leased for its next step.
#[derive(QueryableByName)]
struct Leased {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    webhook_id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    reached: Uuid,
}

const GO_ON: &str = "UPDATE recoveries SET reached = $2, resent = resent + $3, \
       finished_at = CASE WHEN $4 THEN now() END, leased_until = now() + $5 * interval '1 second' \
     WHERE id = $1 AND finished_at IS NULL";

impl Ledger {
    /// Begins a recovery, or returns the webhook's running one. Returns `None` when the tenant has no such webhook.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn recovery_create(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        since: OffsetDateTime,
    ) -> Result<Option<Recovery>, LedgerError> {
        let millis = u64::try_from(since.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        let row = (
            recoveries::id.eq(Uuid::now_v7()),
            recoveries::webhook_id.eq(webhook.as_uuid()),
            recoveries::since.eq(since),
            recoveries::reached.eq(DeliveryId::bound_at_millis(millis)),
        );
        // The update changes nothing. It returns the running recovery.
        let insert = diesel::insert_into(recoveries::table)
            .values(row)
            .on_conflict(recoveries::webhook_id)
            .filter_target(recoveries::finished_at.is_null())
            .do_update()
            .set(recoveries::webhook_id.eq(webhook.as_uuid()))
            .returning(Recovery::as_returning());
        self.run(async |conn| {
            conn.transaction(async |conn| match lock(conn, tenant, webhook).await? {
                Some(_) => insert.get_result(conn).await.map(Some),
                None => Ok(None),
            })
            .await
        })
        .await
    }

    /// One of a webhook's recoveries.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn recovery_find(&self, webhook: OwnWebhook, id: Uuid) -> Result<Option<Recovery>, LedgerError> {
        let query = recoveries::table
            .filter(recoveries::id.eq(id).and(recoveries::webhook_id.eq(webhook.id().as_uuid())))
            .select(Recovery::as_select());
        self.run(async |conn| query.first(conn).await.optional()).await
    }

    /// Leases a running recovery and takes one step: up to `most` dropped deliveries begin a fresh run, and their jobs
    /// are added to the outbox. Skips deliveries older than `keep`. The recovery's next step is due after `pause`,
    /// whoever takes it. Returns `None` when there is nothing to do.
    ///
    /// # Errors
    /// When the database does not answer. The step is then taken as a whole or not at all. Other recoveries come first.
    pub async fn recovery_step(&self, most: u16, pause: Duration, keep: Duration) -> Result<Option<Step>, LedgerError> {
        let lease = diesel::sql_query(format!(
            "UPDATE recoveries AS r SET leased_until = now() + {STEP_LEASE} FROM ( \
               SELECT id FROM recoveries WHERE finished_at IS NULL AND leased_until <= now() \
               ORDER BY leased_until LIMIT 1 FOR UPDATE SKIP LOCKED \
             ) AS next WHERE r.id = next.id RETURNING r.id, r.webhook_id, r.created_at, r.reached"
        ));
        let leased: Option<Leased> = self.run(async |conn| lease.get_result(conn).await.optional()).await?;
        let Some(leased) = leased else { return Ok(None) };
        let step = self.run(async |conn| {
            conn.transaction(async |conn| {
                conn.batch_execute(STEP_LOCKS).await?;
                if !leased.is_running(conn).await? {
                    return Ok(Step::default());
                }
                let first = first_kept(conn, keep).await?;
                let candidates = leased.candidates(conn, first, most).await?;
                let found = leased.dropped(conn, &candidates).await?;
                let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
                begin(conn, &ids).await?;
                let batch = add_to_outbox(conn, &found).await?;
                let is_finished = candidates.len() < usize::from(most);
                diesel::sql_query(GO_ON)
                    .bind::<SqlUuid, _>(leased.id)
                    .bind::<SqlUuid, _>(candidates.last().copied().unwrap_or(leased.reached))
                    .bind::<Int4, _>(i32::try_from(ids.len()).unwrap_or_default())
                    .bind::<Bool, _>(is_finished)
                    .bind::<Double, _>(pause.as_secs_f64())
                    .execute(conn)
                    .await?;
                Ok(Step { deliveries: ids.len(), batch: Some(batch) })
            })
            .await
        });
        step.await.map(Some)
    }
}

impl Leased {
    /// Whether the recovery still runs. A deletion of its webhook ends it, and waits until this transaction ends.
    async fn is_running(&self, conn: &mut AsyncPgConnection) -> QueryResult<bool> {
        let running = recoveries::table.find(self.id).filter(recoveries::finished_at.is_null());
        let id: Option<Uuid> = running.select(recoveries::id).for_update().first(conn).await.optional()?;
        Ok(id.is_some())
    }

    /// The next dropped deliveries in the order of their ids, from `first` on.
    async fn candidates(&self, conn: &mut AsyncPgConnection, first: Uuid, most: u16) -> QueryResult<Vec<Uuid>> {
        unsuccessful_deliveries::table
            .filter(unsuccessful_deliveries::webhook_id.eq(self.webhook_id))
            .filter(unsuccessful_deliveries::state.eq(DeliveryState::Dropped.as_str()))
            .filter(unsuccessful_deliveries::delivery_id.gt(self.reached))
            .filter(unsuccessful_deliveries::delivery_id.ge(first))
            .order(unsuccessful_deliveries::delivery_id)
            .limit(most.into())
            .select(unsuccessful_deliveries::delivery_id)
            .load(conn)
            .await
    }

    /// Those that are still dropped, with their attempts. Leaves out those made after the recovery was asked for.
    async fn dropped(&self, conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<Vec<(Uuid, i16)>> {
        deliveries::table
            .filter(deliveries::id.eq_any(ids))
            .filter(deliveries::state.eq(DeliveryState::Dropped.as_str()))
            .filter(deliveries::created_at.le(self.created_at))
            .order(deliveries::id)
            .select((deliveries::id, deliveries::attempts))
            .for_update()
            .load(conn)
            .await
    }
}
