//! Erases all that the ledger holds of a tenant whose webhooks are deleted, in bounded steps. Each step is a transaction
//! of its own. Whoever is interrupted begins anew, and finds what is left.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::{DeliveryId, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::{clock::now, pool::Ledger},
    error::LedgerError,
    outbox::{held_jobs::DELETE_HELD, tasks::STEP_LOCK_TIMEOUT},
    statement::sql,
    tables::webhooks,
    webhook::{SETTLE_TIME, lock_registrations},
};

/// Deliveries that one step erases, with all that belongs to them: some tens of milliseconds.
const STEP_DELIVERIES: i64 = 1_000;
/// Rows that one step deletes from another table, or reads of it.
const STEP_ROWS: usize = 5_000;

// In the order in which they are erased. First what belongs to a delivery, by `delivery_id`; then the delivery and its
// event.
const DELIVERY_TABLES: [&str; 4] = ["attempts", "promised_jobs", "suspect_jobs", "requeued_jobs"];
/// What belongs to a webhook, with an index that begins with `webhook_id`. Attempts add to statistics and health only with
/// their delivery, so nothing comes there once the deliveries are gone.
const WEBHOOK_TABLES: [&str; 7] = [
    "held_jobs",
    "unsuccessful_deliveries",
    "cancellations",
    "held_webhooks",
    "webhook_health",
    "webhook_stats",
    "recoveries",
];
/// Tables with an index that begins with `tenant_id`. History and webhooks come last: an erasure finds the tenant's webhooks
/// there, and deliveries by these; of a webhook whose row retention has taken, only the history is left.
const TENANT_TABLES: [&str; 5] = ["admin_sessions", "api_keys", "notices", "history", "webhooks"];
/// The others.
const LOG_TABLES: [&str; 2] = ["deliveries", "events"];
/// Tables that keep nothing of a tenant, each with the reason.
const OTHER_TABLES: [(&str, &str); 3] = [
    ("brakes", "has rows of dispatchers and of the operator"),
    ("broker_generation", "has one row, about the broker"),
    ("__diesel_schema_migrations", "has a row for each migration"),
];
/// An erasure, and how far it has come.
#[derive(Clone, Debug)]
pub struct Erasure {
    tenant: TenantId,
    /// The tenant's webhooks, also those of which only the history is left.
    webhooks: Vec<Uuid>,
    /// To webhooks that were deleted before this time, no ingest stores a delivery any more.
    settled_before: OffsetDateTime,
    stage: ErasureStage,
}

#[derive(Clone, Debug)]
enum ErasureStage {
    Deliveries {
        webhook: usize,
        after: Uuid,
    },
    /// The tables of webhooks, then the tables of the tenant, with the number that are done.
    Tables {
        done: usize,
    },
    End,
}

/// The result of a step of an erasure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erased {
    /// So many rows of these tables are gone. There may be more.
    Rows(Vec<(&'static str, usize)>),
    /// Nothing is left to do.
    All,
    /// The tenant has a webhook, or had one until less than [`SETTLE_TIME`] before the erasure began: nothing was done.
    Registered,
}

/// The tables that an erasure looks after, or need not.
pub fn erased_tables() -> impl Iterator<Item = &'static str> {
    let others = OTHER_TABLES.iter().map(|(table, _)| *table);
    DELIVERY_TABLES.into_iter().chain(WEBHOOK_TABLES).chain(TENANT_TABLES).chain(LOG_TABLES).chain(others)
}

// A webhook's log is read as the README says of it.
const FIND_DELIVERIES: &str = "SELECT id, event_id FROM deliveries WHERE webhook_id = ANY (ARRAY[$1]) AND id > $2 \
     ORDER BY webhook_id, id LIMIT $3";
// The ranges of the following statements keep the partitions of other days closed.
const LOCK_DELIVERIES: &str =
    "SELECT id FROM deliveries WHERE id = ANY ($1) AND id BETWEEN $2 AND $3 ORDER BY id FOR UPDATE";
const ERASE_DELIVERIES: &str = "DELETE FROM deliveries WHERE id = ANY ($1) AND id BETWEEN $2 AND $3";
// One of these may belong to deliveries of other webhooks as well. They are the tenant's, too.
const ERASE_EVENTS: &str =
    "DELETE FROM events WHERE id = ANY ($1) AND tenant_id = $2 AND occurred_at BETWEEN $3 AND $4";
const FIND_PAST_WEBHOOKS: &str = "SELECT DISTINCT webhook_id FROM history WHERE tenant_id = $1";

impl Ledger {
    /// Begins an erasure: finds the tenant's webhooks. Changes nothing.
    pub async fn erasure_begin(&self, tenant: TenantId) -> Result<Erasure, LedgerError> {
        let own = webhooks::table.filter(webhooks::tenant_id.eq(tenant.as_uuid())).select(webhooks::id);
        let ever = sql(FIND_PAST_WEBHOOKS).bind(tenant.as_uuid());
        let (own, ever, now): (Vec<Uuid>, Vec<Uuid>, OffsetDateTime) = self
            .run("erasure_begin", async |conn| Ok((own.load(conn).await?, ever.values(conn).await?, now(conn).await?)))
            .await?;
        let webhooks = BTreeSet::from_iter(own.into_iter().chain(ever));
        let webhooks = webhooks.into_iter().collect();
        let stage = ErasureStage::Deliveries { webhook: 0, after: Uuid::nil() };
        Ok(Erasure { tenant, webhooks, settled_before: now - SETTLE_TIME, stage })
    }

    /// Takes an erasure's next step, unless a webhook of the tenant is not deleted, or was deleted less than [`SETTLE_TIME`]
    /// before the erasure began or later: what belongs to such a webhook may come where the erasure has been.
    ///
    /// # Errors
    /// When the database does not answer, or a row is locked. Nothing has happened then, and the step can be taken again.
    pub async fn erasure_step(&self, erasure: &mut Erasure) -> Result<Erased, LedgerError> {
        let (tenant, settled_before) = (erasure.tenant, erasure.settled_before);
        let taken = self.transaction("erasure_step", async |conn| {
            conn.batch_execute(STEP_LOCK_TIMEOUT).await?;
            // So nobody registers a webhook, which would get the events that are about to go.
            lock_registrations(conn, tenant).await?;
            let is_unsettled = webhooks::deleted_at.is_null().or(webhooks::deleted_at.gt(settled_before));
            let registered = webhooks::table.filter(webhooks::tenant_id.eq(tenant.as_uuid())).filter(is_unsettled);
            if diesel::select(diesel::dsl::exists(registered)).get_result::<bool>(conn).await? {
                return Ok(None);
            }
            erasure.erase_some(conn).await.map(Some)
        });
        let Some((gone, next)) = taken.await? else { return Ok(Erased::Registered) };
        let is_over = matches!(erasure.stage, ErasureStage::End);
        erasure.stage = next;
        Ok(if is_over { Erased::All } else { Erased::Rows(gone) })
    }
}

type DeletedRows = Vec<(&'static str, usize)>;

impl Erasure {
    /// The tenant's webhooks, also those of which only the history is left.
    pub fn webhooks(&self) -> impl Iterator<Item = WebhookId> {
        self.webhooks.iter().copied().map(WebhookId::from)
    }

    /// Erases the next rows. Returns how many, and the stage that comes next.
    async fn erase_some(&self, conn: &mut AsyncPgConnection) -> QueryResult<(DeletedRows, ErasureStage)> {
        Ok(match &self.stage {
            ErasureStage::Deliveries { webhook, after } => {
                let Some(id) = self.webhooks.get(*webhook) else {
                    return Ok((Vec::new(), ErasureStage::Tables { done: 0 }));
                };
                let (gone, last) = self.erase_deliveries(conn, *id, *after).await?;
                let next = ErasureStage::Deliveries { webhook: webhook + 1, after: Uuid::nil() };
                (gone, last.map_or(next, |after| ErasureStage::Deliveries { webhook: *webhook, after }))
            }
            ErasureStage::Tables { done } => {
                let of_webhooks = WEBHOOK_TABLES.into_iter().map(|table| (table, "webhook_id = ANY ($1)"));
                let of_tenant = TENANT_TABLES.into_iter().map(|table| (table, "tenant_id = $2"));
                let Some((table, is_own)) = of_webhooks.chain(of_tenant).nth(*done) else {
                    return Ok((Vec::new(), ErasureStage::End));
                };
                let erase = sql(format!(
                    "DELETE FROM {table} WHERE ctid = ANY (ARRAY( \
                       SELECT ctid FROM {table} WHERE {is_own} LIMIT {STEP_ROWS}))"
                ));
                let gone = erase.bind(&self.webhooks).bind(self.tenant).execute(conn).await?;
                (vec![(table, gone)], ErasureStage::Tables { done: done + usize::from(gone < STEP_ROWS) })
            }
            ErasureStage::End => (Vec::new(), ErasureStage::End),
        })
    }

    /// Erases deliveries of one webhook and one day, with what belongs to them. Returns the last one, if there are any.
    /// Held jobs are locked before deliveries, and these in the order of ids, as everywhere.
    async fn erase_deliveries(
        &self,
        conn: &mut AsyncPgConnection,
        webhook: Uuid,
        after: Uuid,
    ) -> QueryResult<(DeletedRows, Option<Uuid>)> {
        let next = sql(FIND_DELIVERIES).bind(webhook).bind(after);
        let next: Vec<(Uuid, Uuid)> = next.bind(STEP_DELIVERIES).values(conn).await?;
        let moment = |id: Uuid| DeliveryId::from(id).occurred_at();
        let is_same_day = |(one, _): &(Uuid, Uuid), (other, _): &_| moment(*one).date() == moment(*other).date();
        let Some(next) = next.chunk_by(is_same_day).next() else { return Ok((Vec::new(), None)) };
        let (ids, events): (Vec<Uuid>, Vec<Uuid>) = next.iter().copied().unzip();
        let (first, last) = (ids[0], ids[ids.len() - 1]);
        let these = |statement: String| {
            let statement = sql(statement).bind(ids.clone());
            statement.bind(first).bind(last)
        };
        let forget = sql(DELETE_HELD).bind(webhook);
        let held = forget.bind(&ids).execute(conn).await?;
        these(LOCK_DELIVERIES.to_owned()).execute(conn).await?;
        let mut gone = vec![("held_jobs", held)];
        for table in DELIVERY_TABLES {
            let erase = format!("DELETE FROM {table} WHERE delivery_id = ANY ($1) AND delivery_id BETWEEN $2 AND $3");
            gone.push((table, these(erase).execute(conn).await?));
        }
        gone.push(("deliveries", these(ERASE_DELIVERIES.to_owned()).execute(conn).await?));
        let erase = sql(ERASE_EVENTS).bind(events).bind(self.tenant.as_uuid()).bind(moment(first)).bind(moment(last));
        gone.push(("events", erase.execute(conn).await?));
        Ok((gone, Some(last)))
    }
}
