//! Webhooks that may have jobs in the slow lane's queue.

use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::RunQueryDsl;
use domain::WebhookId;
use uuid::Uuid;

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

// In the order of ids: two dispatchers that stamp the same webhooks wait for one another and never deadlock.
batch_statement! {
    StampSlow -> (SqlUuid,);
    slow { webhook: Uuid => SqlUuid };
    "INSERT INTO slow_webhooks (webhook_id, stamped_at) SELECT DISTINCT webhook, now() FROM slow ORDER BY webhook \
      ON CONFLICT (webhook_id) DO UPDATE SET stamped_at = now() RETURNING webhook_id"
}

impl Ledger {
    /// Stamps webhooks of which a job is about to be moved to the slow lane, or was found there. Lost-job detection
    /// leaves them alone until the stamp is old, and the lane is empty or has since handed out all that it held.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn slow_stamp(&self, webhooks: &[WebhookId]) -> Result<(), LedgerError> {
        let statement = StampSlow { webhook: webhooks.iter().map(|id| id.as_uuid()).collect() };
        let _: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(())
    }
}
