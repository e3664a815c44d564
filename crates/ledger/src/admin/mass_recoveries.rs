//! Mass recoveries: an operator has dropped deliveries of any tenant sent again, in steps. Nothing of a mass recovery is
//! stored: a delivery that was sent again is no longer dropped, so the same command continues where another one stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use diesel::{
    QueryableByName,
    prelude::*,
    sql_types::{BigInt, Nullable, SmallInt, Text, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::{DeliveryId, DeliveryState, OutcomeClass, TenantId, WebhookId, time_text};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::{
        history::{Action, Actor, add_history},
        outbox::{OutboxBatch, add_leased},
        recoveries::{end_of_ids, with_their_bodies},
        resends::{MOST_ATTEMPTS, begin, first_kept},
        tasks::STEP_LOCKS,
    },
    error::LedgerError,
    hot::waiting::is_one_of,
    pool::Ledger,
    tables::{deliveries, webhook_tasks, webhooks},
};

/// Unsuccessful deliveries that a step looks at: some tens of milliseconds. It begins with a few, as all of these may be
/// wanted.
const LOOKED_AT: usize = 5_000;
const AT_FIRST: usize = 100;

/// Which dropped deliveries are to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MassRecovery {
    /// Deliveries whose event fired at this time or later,
    pub from: OffsetDateTime,
    /// and before this time,
    pub to: OffsetDateTime,
    /// whose last attempt had one of these outcomes, or any if there is none,
    pub outcomes: Vec<OutcomeClass>,
    /// and which belong to this tenant, or to any.
    pub tenant: Option<TenantId>,
}

/// A step of a mass recovery, or of its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MassStep {
    /// The deliveries that are sent again, or would be, by tenant and webhook.
    pub deliveries: BTreeMap<(TenantId, WebhookId), u64>,
    /// Where the next step begins. `None` at the end.
    pub next: Option<DeliveryId>,
    /// The jobs that the caller has to publish.
    pub batch: Option<OutboxBatch>,
}

#[derive(QueryableByName)]
struct LookedAt {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    webhook_id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    tenant_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    attempts: Option<i16>,
    #[diesel(sql_type = Nullable<Text>)]
    outcome: Option<String>,
}

/// A delivery that can be sent again.
struct Dropped {
    id: Uuid,
    webhook: Uuid,
    tenant: Uuid,
}

/// Some of the dropped deliveries, and where to look next.
struct Found {
    dropped: Vec<Dropped>,
    next: Option<DeliveryId>,
}

impl Ledger {
    /// Counts the deliveries that a mass recovery would send again now, from `after` on. Those whose bodies are older than
    /// `bodies` are left out.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn mass_recovery_count(
        &self,
        wanted: &MassRecovery,
        after: Option<DeliveryId>,
        bodies: Duration,
    ) -> Result<MassStep, LedgerError> {
        let found =
            self.run("mass_recovery_count", async |conn| wanted.find(conn, after, bodies, usize::MAX).await).await?;
        Ok(MassStep { deliveries: counted(&found.dropped), next: found.next, batch: None })
    }

    /// Has up to `most` deliveries begin a fresh run, and adds their jobs to the outbox. The history of each webhook that
    /// is not in `noted` gets an entry of `user`, and the webhook is added to `noted`.
    ///
    /// # Errors
    /// When the database does not answer, or a lock is held for longer than a step waits. The step is then taken as a whole
    /// or not at all.
    pub async fn mass_recovery_step(
        &self,
        wanted: &MassRecovery,
        after: Option<DeliveryId>,
        (most, bodies): (usize, Duration),
        (user, noted): (&str, &mut BTreeSet<WebhookId>),
    ) -> Result<MassStep, LedgerError> {
        let known = &*noted;
        let step = self
            .run("mass_recovery_step", async |conn| {
                conn.transaction(async |conn| {
                    conn.batch_execute(STEP_LOCKS).await?;
                    let Found { dropped, next } = wanted.find(conn, after, bodies, most).await?;
                    let open = lock_open(conn, &dropped).await?;
                    let candidates: Vec<_> = dropped.iter().filter(|one| open.contains(&one.webhook)).collect();
                    let still_dropped = lock_dropped(conn, &candidates).await?;
                    let begun = with_their_bodies(conn, still_dropped).await?;
                    let ids: Vec<Uuid> = begun.iter().map(|(id, _)| *id).collect();
                    begin(conn, &ids).await?;
                    let batch = add_leased(conn, &begun).await?;
                    let taken = dropped.into_iter().filter(|one| ids.binary_search(&one.id).is_ok());
                    let deliveries = counted(&taken.collect::<Vec<_>>());
                    for (tenant, webhook) in deliveries.keys().filter(|(_, webhook)| !known.contains(webhook)) {
                        let actor = Actor { tenant: *tenant, user: user.to_owned() };
                        add_history(conn, &actor, *webhook, Action::Recovered, wanted.details()).await?;
                    }
                    Ok(MassStep { deliveries, next, batch: Some(batch) })
                })
                .await
            })
            .await?;
        noted.extend(step.deliveries.keys().map(|(_, webhook)| *webhook));
        Ok(step)
    }
}

impl MassRecovery {
    /// Looks at unsuccessful deliveries after `after`, and stops at `most` that can be sent again.
    async fn find(
        &self,
        conn: &mut AsyncPgConnection,
        after: Option<DeliveryId>,
        bodies: Duration,
        most: usize,
    ) -> QueryResult<Found> {
        let first = DeliveryId::bound_at(self.from).max(first_kept(conn, bodies).await?);
        let mut after = after.map_or(first, |after| first.max(after.as_uuid()));
        let (mut dropped, mut left, mut amount) = (Vec::new(), LOOKED_AT, most.saturating_mul(2).max(AT_FIRST));
        while left > 0 {
            amount = amount.min(left);
            let looked_at = self.look_at(conn, after, amount).await?;
            let last = looked_at.get(amount - 1).map(|last| last.id);
            let wanted = looked_at.into_iter().filter_map(|one| self.wanted(one));
            dropped.extend(wanted.take(most - dropped.len()));
            if let Some(full) = dropped.get(most - 1) {
                return Ok(Found { next: Some(full.id.into()), dropped });
            }
            let Some(last) = last else { return Ok(Found { dropped, next: None }) };
            (after, left, amount) = (last, left - amount, amount * 2);
        }
        Ok(Found { dropped, next: Some(after.into()) })
    }

    /// The next unsuccessful deliveries after an id.
    async fn look_at(&self, conn: &mut AsyncPgConnection, after: Uuid, amount: usize) -> QueryResult<Vec<LookedAt>> {
        diesel::sql_query(include_str!("find_dropped.sql"))
            .bind::<SqlUuid, _>(after)
            .bind::<SqlUuid, _>(end_of_ids(Some(self.to)))
            .bind::<BigInt, _>(i64::try_from(amount).unwrap_or(i64::MAX))
            .bind::<Nullable<SqlUuid>, _>(self.tenant.map(TenantId::as_uuid))
            .bind::<SmallInt, _>(MOST_ATTEMPTS)
            .load(conn)
            .await
    }

    fn wanted(&self, LookedAt { id, webhook_id, tenant_id, attempts, outcome }: LookedAt) -> Option<Dropped> {
        let fits = |class: &OutcomeClass| outcome.as_deref() == Some(class.as_str());
        let is_wanted = attempts.is_some() && (self.outcomes.is_empty() || self.outcomes.iter().any(fits));
        Some(Dropped { id, webhook: webhook_id, tenant: tenant_id.filter(|_| is_wanted)? })
    }

    /// The details of an entry in a webhook's history.
    fn details(&self) -> Value {
        let outcomes: Vec<_> = self.outcomes.iter().map(|class| class.as_str()).collect();
        let outcomes = Some(outcomes).filter(|some| !some.is_empty());
        json!({
            "since": time_text::written(self.from),
            "until": time_text::written(self.to),
            "states": [DeliveryState::Dropped.as_str()],
            "outcomes": outcomes,
        })
    }
}

/// Locks webhooks, in the order of their ids. Returns those that are not deleted and whose deliveries are not being cancelled:
/// that stays so until the transaction ends.
async fn lock_open(conn: &mut AsyncPgConnection, dropped: &[Dropped]) -> QueryResult<BTreeSet<Uuid>> {
    let ids: BTreeSet<Uuid> = dropped.iter().map(|one| one.webhook).collect();
    let there: Vec<Uuid> = webhooks::table
        .filter(webhooks::id.eq_any(ids).and(webhooks::deleted_at.is_null()))
        .order(webhooks::id)
        .select(webhooks::id)
        .for_share()
        .load(conn)
        .await?;
    let cancelling: Vec<Uuid> = webhook_tasks::table
        .filter(webhook_tasks::webhook_id.eq_any(&there))
        .select(webhook_tasks::webhook_id)
        .load(conn)
        .await?;
    Ok(there.into_iter().filter(|webhook| !cancelling.contains(webhook)).collect())
}

/// Locks those that are still dropped, in the order of their ids. Returns them with their attempts.
async fn lock_dropped(conn: &mut AsyncPgConnection, candidates: &[&Dropped]) -> QueryResult<Vec<(Uuid, i16)>> {
    let ids: Vec<Uuid> = candidates.iter().map(|one| one.id).collect();
    deliveries::table
        .filter(is_one_of(&ids).and(deliveries::state.eq(DeliveryState::Dropped.as_str())))
        .order(deliveries::id)
        .select((deliveries::id, deliveries::attempts))
        .for_update()
        .load(conn)
        .await
}

fn counted(dropped: &[Dropped]) -> BTreeMap<(TenantId, WebhookId), u64> {
    let mut counts = BTreeMap::new();
    for one in dropped {
        *counts.entry((TenantId::from(one.tenant), WebhookId::from(one.webhook))).or_default() += 1;
    }
    counts
}
