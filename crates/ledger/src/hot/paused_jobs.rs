//! Paused jobs: jobs of a webhook that takes no deliveries. They are held until it does.

use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, WebhookId};
use uuid::Uuid;

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

batch_statement! {
    HoldJobs -> (SqlUuid,);
    job { webhook: Uuid => SqlUuid, delivery: Uuid => SqlUuid };
    include_str!("hold_jobs.sql")
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
