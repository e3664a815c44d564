//! Paused jobs: jobs of a webhook that takes no deliveries. They are held until it does.

use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, WebhookId};
use uuid::Uuid;

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

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
}
