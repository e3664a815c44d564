//! Cancellations: what waits for a webhook is cancelled, and the webhook stays.

use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};
use domain::WebhookId;
use serde_json::json;
use uuid::Uuid;

use crate::{
    admin::{
        history::{Action, Actor, add_history},
        tasks::begin_cancellation,
        webhooks::{END_RECOVERIES, of},
    },
    clock::now,
    error::LedgerError,
    pool::Ledger,
    statement::sql,
    tables::webhooks,
};

/// The result of a request to cancel what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The tenant has no such webhook.
    NotFound,
    /// The deliveries that were made before the request are cancelled in steps.
    Begun,
}

impl Ledger {
    /// Has [`Ledger::cancellation_step`] cancel the webhook's deliveries that wait and were made before this request. Ends
    /// its running recovery. A cancellation that is under way begins anew, and includes what was made since its own request.
    ///
    /// # Errors
    /// When the database does not answer. Then all of it has happened, or nothing.
    pub async fn webhook_cancel(&self, actor: &Actor, webhook: WebhookId) -> Result<Cancellation, LedgerError> {
        let id = webhook.as_uuid();
        // Resends and recoveries share this lock. So each of them sees the cancellation, or is seen by its steps.
        let lock = webhooks::table.find(id).filter(of(actor.tenant)).select(webhooks::id).for_update();
        self.run("webhook_cancel", async |conn| {
            conn.transaction(async |conn| {
                let locked: Option<Uuid> = lock.first(conn).await.optional()?;
                if locked.is_none() {
                    return Ok(Cancellation::NotFound);
                }
                sql(END_RECOVERIES).bind(id).execute(conn).await?;
                let until = now(conn).await?;
                begin_cancellation(conn, id, Some(until)).await?;
                add_history(conn, actor, webhook, Action::Cancelled, json!({})).await?;
                Ok(Cancellation::Begun)
            })
            .await
        })
        .await
    }
}
