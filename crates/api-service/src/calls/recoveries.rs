//! Recoveries. The outbox relay sends what was dropped or skipped in a span of time again.

use domain::WebhookId;
use ledger::{NewRecovery, Recover, RecoverableCount, Recovery};

use crate::http::{ApiError, Caller};

/// The result of a request to recover.
pub(crate) enum Beginning {
    /// This recovery has begun.
    Begun(Recovery),
    /// This recovery was running already, and no other one has begun.
    Running(Recovery),
}

/// Begins a recovery, or finds the one that is running.
pub(crate) async fn begin(caller: &Caller, webhook: WebhookId, wanted: &NewRecovery) -> Result<Beginning, ApiError> {
    let made = caller
        .ledger
        .recovery_create(&caller.admin, webhook, wanted, caller.kept.bodies)
        .await
        .map_err(ApiError::of_change)?;
    let recovery = match made {
        Recover::NotFound => return Err(ApiError::NotFound),
        Recover::Cancelling => return Err(ApiError::Cancelling),
        Recover::BodiesExpired => return Err(ApiError::BodyExpired),
        Recover::Running(recovery) => return Ok(Beginning::Running(recovery)),
        Recover::Begun(recovery) => recovery,
    };
    caller.wakes.recoveries.notify_one();
    tracing::info!(recovery = %recovery.id, %webhook, tenant = %caller.admin.tenant, "deliveries are recovered");
    Ok(Beginning::Begun(recovery))
}

/// How many deliveries a recovery would send again.
pub(crate) async fn count(
    caller: &Caller,
    webhook: WebhookId,
    wanted: &NewRecovery,
) -> Result<RecoverableCount, ApiError> {
    let counted = caller.ledger.recoverable_count(caller.admin.tenant, webhook, wanted, caller.kept.bodies).await?;
    counted.ok_or(ApiError::NotFound)
}
