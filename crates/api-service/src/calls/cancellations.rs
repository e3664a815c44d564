//! Cancelling what waits.

use domain::WebhookId;
use ledger::Cancellation;

use crate::{caller::Caller, problem::ApiError};

/// Wakes the outbox relay, which cancels in steps what waits now. What comes later is delivered.
pub(crate) async fn cancel(caller: &Caller, webhook: WebhookId) -> Result<(), ApiError> {
    match caller.ledger.webhook_cancel(&caller.admin, webhook).await.map_err(ApiError::of_change)? {
        Cancellation::NotFound => return Err(ApiError::NotFound),
        Cancellation::Begun => caller.wakes.cancellations.notify_one(),
    }
    tracing::info!(%webhook, tenant = %caller.admin.tenant, "what waits is cancelled");
    Ok(())
}
