//! Paused jobs: jobs of a webhook that takes no deliveries. They are held until it does.

use std::collections::HashSet;

use diesel::{prelude::*, sql_types::Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::outbox::lock_waiting,
    batch::batch_statement,
    error::LedgerError,
    pool::Ledger,
    tables::deliveries,
    upkeep::{leader::Leader, reconcile::Waiting},
};

// The share lock makes an activation wait, so that it finds the jobs held here. Jobs that come after it are not held.
batch_statement! {
    HoldJobs -> (SqlUuid,);
    job { webhook: Uuid => SqlUuid, delivery: Uuid => SqlUuid };
    ", paused AS MATERIALIZED ( \
        SELECT id FROM webhooks WHERE id IN (SELECT webhook FROM job) AND NOT is_active ORDER BY id FOR SHARE \
      ), held AS ( \
        INSERT INTO held_jobs (webhook_id, delivery_id) \
        SELECT webhook, delivery FROM job JOIN paused ON paused.id = job.webhook ON CONFLICT DO NOTHING \
      ) SELECT job.delivery FROM job JOIN paused ON paused.id = job.webhook"
}

impl Ledger {
    /// Holds the job of a delivery until its webhook is active again. Returns `false` if it is active by now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn job_hold(&self, webhook: WebhookId, delivery: DeliveryId) -> Result<bool, LedgerError> {
        let statement = HoldJobs { webhook: vec![webhook.as_uuid()], delivery: vec![delivery.as_uuid()] };
        let held: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(!held.is_empty())
    }

    /// Cancels those of the deliveries that still wait.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn deliveries_cancel(&self, ids: &[DeliveryId]) -> Result<(), LedgerError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        self.run(async |conn| conn.transaction(async |conn| cancel_waiting(conn, &ids).await.map(|_| ())).await).await
    }
}

/// Cancels those of the deliveries that wait. Returns how many.
pub(crate) async fn cancel_waiting(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<usize> {
    let waiting: Vec<Uuid> = lock_waiting(conn, ids).await?.into_iter().map(|(id, _)| id).collect();
    diesel::update(deliveries::table.filter(deliveries::id.eq_any(waiting)))
        .set((deliveries::state.eq("cancelled"), deliveries::next_attempt_at.eq(None::<OffsetDateTime>)))
        .execute(conn)
        .await
}

impl Leader {
    /// Holds the jobs of deliveries whose webhooks are paused. Returns the deliveries whose webhooks are active by now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn jobs_hold(&mut self, paused: Vec<Waiting>) -> Result<Vec<Waiting>, LedgerError> {
        if paused.is_empty() {
            return Ok(paused);
        }
        let statement = HoldJobs {
            webhook: paused.iter().map(|waiting| waiting.webhook.as_uuid()).collect(),
            delivery: paused.iter().map(|waiting| waiting.job.delivery.as_uuid()).collect(),
        };
        let held: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        let held: HashSet<Uuid> = held.into_iter().map(|(id,)| id).collect();
        Ok(paused.into_iter().filter(|waiting| !held.contains(&waiting.job.delivery.as_uuid())).collect())
    }
}
