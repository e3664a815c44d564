//! Recoveries: every dropped delivery of a webhook since a time is sent again, bit by bit, however often the process that
//! does it dies.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    pool::Ledger,
    promises::{Promised, promise},
    resends::{begin, first_kept},
    tables::{deliveries, recoveries},
    webhooks::{OwnWebhook, lock},
};

/// A recovery and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = recoveries, check_for_backend(diesel::pg::Pg))]
pub struct Recovery {
    /// Its id.
    pub id: Uuid,
    /// Deliveries are recovered whose event fired at this time or later.
    pub since: OffsetDateTime,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was done.
    pub finished_at: Option<OffsetDateTime>,
    /// How many deliveries have begun a fresh run.
    pub resent: i32,
}

/// A running recovery, as the one who takes its next step sees it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = recoveries, check_for_backend(diesel::pg::Pg))]
struct Running {
    id: Uuid,
    webhook_id: Uuid,
    created_at: OffsetDateTime,
    reached: Uuid,
}

impl Ledger {
    /// Begins a recovery, or returns the one that is running for this webhook. `None` when the tenant has no such webhook.
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
        // The update changes nothing: it is there to return the row that is running.
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

    /// Takes one step of any running recovery that nobody else is at: up to `most` dropped deliveries begin a fresh run,
    /// and their jobs are promised. Those older than `keep` are passed over. The recovery's next step comes after `pause`,
    /// whoever takes it. `None` when there is nothing to do.
    ///
    /// # Errors
    /// When the database does not answer; the step is taken then, or not at all.
    pub async fn recovery_step(
        &self,
        most: u16,
        pause: Duration,
        keep: Duration,
    ) -> Result<Option<Promised>, LedgerError> {
        let now = OffsetDateTime::now_utc();
        let next = recoveries::table
            .filter(recoveries::finished_at.is_null().and(recoveries::leased_until.le(now)))
            .order(recoveries::leased_until)
            .select(Running::as_select())
            .for_update()
            .skip_locked();
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let Some(running) = next.first(conn).await.optional()? else { return Ok(None) };
                let first = first_kept(conn, keep).await?;
                let found = running.next(conn, first, most).await?;
                let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
                begin(conn, &ids).await?;
                let promised = promise(conn, &found).await?;
                let finished = (found.len() < usize::from(most)).then_some(now);
                diesel::update(recoveries::table.find(running.id))
                    .set((
                        recoveries::reached.eq(ids.last().copied().unwrap_or(running.reached)),
                        recoveries::resent.eq(recoveries::resent + i32::try_from(ids.len()).unwrap_or_default()),
                        recoveries::finished_at.eq(finished),
                        recoveries::leased_until.eq(now + pause),
                    ))
                    .execute(conn)
                    .await?;
                Ok(Some(promised))
            })
            .await
        })
        .await
    }
}

impl Running {
    /// The next dropped deliveries in the order of their ids, with their attempts. Those that were made after the
    /// recovery was asked for are not its business, nor those before `first`.
    async fn next(&self, conn: &mut AsyncPgConnection, first: Uuid, most: u16) -> QueryResult<Vec<(Uuid, i16)>> {
        deliveries::table
            .filter(deliveries::webhook_id.eq(self.webhook_id).and(deliveries::id.gt(self.reached)))
            .filter(deliveries::id.ge(first))
            .filter(deliveries::state.eq(DeliveryState::Dropped.as_str()))
            .filter(deliveries::created_at.le(self.created_at))
            .order(deliveries::id)
            .limit(most.into())
            .select((deliveries::id, deliveries::attempts))
            .for_update()
            .load(conn)
            .await
    }
}
