//! Which webhooks may have jobs in the queue of the slow lane.

use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::RunQueryDsl;
use domain::WebhookId;
use uuid::Uuid;

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

// In the order of ids, so that two dispatchers that stamp the same webhooks wait for one another and never deadlock.
batch_statement! {
    StampSlow -> (SqlUuid,);
    slow { webhook: Uuid => SqlUuid };
    " INSERT INTO slow_webhooks (webhook_id, stamped_at) SELECT DISTINCT webhook, now() FROM slow ORDER BY webhook \
      ON CONFLICT (webhook_id) DO UPDATE SET stamped_at = now() RETURNING webhook_id"
}

impl Ledger {
    /// Stamps webhooks of which a job is about to be moved to the slow lane, or was found there. Who looks for lost jobs
    /// leaves a stamped webhook alone until its stamp is old, and the slow lane was seen empty or has gone round since.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn slow_stamp(&self, webhooks: &[WebhookId]) -> Result<(), LedgerError> {
        let statement = StampSlow { webhook: webhooks.iter().map(|id| id.as_uuid()).collect() };
        let _: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(())
    }
}
