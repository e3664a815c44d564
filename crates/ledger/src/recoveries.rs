//! Recoveries: every dropped delivery of a webhook since a time is sent again, bit by bit, however often the process that
//! does it dies.

use diesel::{dsl::not, prelude::*};
use diesel_async::{AsyncConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, Job, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    pool::Ledger,
    promises::{LEASE, promise},
    resends::begin,
    tables::{deliveries, recoveries},
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

impl Ledger {
    /// Begins a recovery, or returns the one that is running for this webhook.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn recovery_create(
        &self,
        id: Uuid,
        webhook: WebhookId,
        since: OffsetDateTime,
    ) -> Result<Recovery, LedgerError> {
        let millis = u64::try_from(since.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        self.run(async |conn| {
            conn.transaction(async |conn| {
                diesel::insert_into(recoveries::table)
                    .values((
                        recoveries::id.eq(id),
                        recoveries::webhook_id.eq(webhook.as_uuid()),
                        recoveries::since.eq(since),
                        recoveries::reached.eq(DeliveryId::bound_at_millis(millis)),
                    ))
                    .on_conflict_do_nothing()
                    .execute(conn)
                    .await?;
                recoveries::table
                    .filter(recoveries::webhook_id.eq(webhook.as_uuid()).and(recoveries::finished_at.is_null()))
                    .select(Recovery::as_select())
                    .first(conn)
                    .await
            })
            .await
        })
        .await
    }

    /// One of a webhook's recoveries.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn recovery_find(&self, webhook: WebhookId, id: Uuid) -> Result<Option<Recovery>, LedgerError> {
        let query = recoveries::table
            .filter(recoveries::id.eq(id).and(recoveries::webhook_id.eq(webhook.as_uuid())))
            .select(Recovery::as_select());
        self.run(async |conn| query.first(conn).await.optional()).await
    }

    /// Takes one step of any running recovery that nobody else is at: up to `most` dropped deliveries begin a fresh run.
    /// Their jobs are promised: publish them, then keep the promises. `None` when there is nothing to do.
    ///
    /// # Errors
    /// When the database does not answer; the step is taken then, or not at all.
    pub async fn recovery_step(&self, most: u16, pause: time::Duration) -> Result<Option<Vec<Job>>, LedgerError> {
        let now = OffsetDateTime::now_utc();
        let next = recoveries::table
            .filter(recoveries::finished_at.is_null().and(recoveries::leased_until.le(now)))
            .order(recoveries::leased_until)
            .select((recoveries::id, recoveries::webhook_id, recoveries::created_at, recoveries::reached))
            .for_update()
            .skip_locked();
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let row: Option<(Uuid, Uuid, OffsetDateTime, Uuid)> = next.first(conn).await.optional()?;
                let Some((id, webhook, created_at, reached)) = row else { return Ok(None) };
                let found: Vec<(Uuid, i16)> = deliveries::table
                    .filter(deliveries::webhook_id.eq(webhook).and(deliveries::id.gt(reached)))
                    .filter(deliveries::state.eq(DeliveryState::Dropped.as_str()))
                    .filter(not(deliveries::created_at.gt(created_at)))
                    .order(deliveries::id)
                    .limit(most.into())
                    .select((deliveries::id, deliveries::attempts))
                    .for_update()
                    .load(conn)
                    .await?;
                let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
                begin(conn, &ids).await?;
                promise(conn, &ids, now + LEASE).await?;
                let finished = (found.len() < usize::from(most)).then_some(now);
                diesel::update(recoveries::table.find(id))
                    .set((
                        recoveries::reached.eq(ids.last().copied().unwrap_or(reached)),
                        recoveries::resent.eq(recoveries::resent + i32::try_from(ids.len()).unwrap_or_default()),
                        recoveries::finished_at.eq(finished),
                        recoveries::leased_until.eq(now + pause),
                    ))
                    .execute(conn)
                    .await?;
                let attempt = |attempts: i16| u16::try_from(attempts).unwrap_or_default() + 1;
                let job = |(id, attempts): (Uuid, i16)| Job { delivery: id.into(), attempt: attempt(attempts) };
                Ok(Some(found.into_iter().map(job).collect()))
            })
            .await
        })
        .await
    }
}
