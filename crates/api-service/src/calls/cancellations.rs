//! Cancelling what waits.

use domain::WebhookId;
use ledger::{Actor, Cancellation};

use crate::{problem::ApiError, state::State};

/// Wakes the outbox relay, which cancels in steps what waits now. What comes later is delivered.
pub(crate) async fn cancel(state: &State, admin: &Actor, webhook: WebhookId) -> Result<(), ApiError> {
    match state.ledger.webhook_cancel(admin, webhook).await? {
        Cancellation::NotFound => return Err(ApiError::NotFound),
        Cancellation::Begun => state.outbox.cancellations.notify_one(),
    }
    tracing::info!(%webhook, tenant = %admin.tenant, "what waits is cancelled");
    Ok(())
}
