//! Recoveries. The outbox relay sends what was dropped or skipped in a span of time again.

use domain::WebhookId;
use ledger::{Actor, NewRecovery, OwnWebhook, Recover, RecoverableCount, Recovery};
use uuid::Uuid;

use crate::{problem::ApiError, state::State};

/// Begins a recovery, or finds the one that is running.
pub(crate) async fn begin(
    state: &State,
    admin: &Actor,
    webhook: WebhookId,
    wanted: &NewRecovery,
) -> Result<Recovery, ApiError> {
    let recovery = match state.ledger.recovery_create(admin, webhook, wanted).await? {
        Recover::NotFound => return Err(ApiError::NotFound),
        Recover::Cancelling => return Err(ApiError::Cancelling),
        Recover::UnderWay(recovery) => recovery,
    };
    state.outbox.recoveries.notify_one();
    tracing::info!(recovery = %recovery.id, %webhook, tenant = %admin.tenant, "deliveries are recovered");
    Ok(recovery)
}

/// How many deliveries a recovery would send again.
pub(crate) async fn count(
    state: &State,
    admin: &Actor,
    webhook: WebhookId,
    wanted: &NewRecovery,
) -> Result<RecoverableCount, ApiError> {
    let counted = state.ledger.recoverable_count(admin.tenant, webhook, wanted, state.keep).await?;
    counted.ok_or(ApiError::NotFound)
}

/// A recovery and its progress.
pub(crate) async fn find(state: &State, webhook: OwnWebhook, id: Uuid) -> Result<Recovery, ApiError> {
    state.ledger.recovery_find(webhook, id).await?.ok_or(ApiError::NotFound)
}

/// The recovery that is running.
pub(crate) async fn running(state: &State, webhook: OwnWebhook) -> Result<Option<Recovery>, ApiError> {
    Ok(state.ledger.recovery_running(webhook).await?)
}
