//! Registering, finding, changing and deleting webhooks, and cancelling waiting deliveries.

use domain::WebhookId;
use ledger::{Cancellation, DeletedWebhook, NewWebhook, OwnWebhook, Registration, Webhook, WebhookSettings};
use signing::SigningSecret;

use crate::http::{ApiError, Caller, Checked};

/// Registers a webhook, and returns its secret with it.
pub(crate) async fn register(
    caller: &Caller,
    id: WebhookId,
    settings: WebhookSettings,
) -> Result<(Webhook, SigningSecret), ApiError> {
    let tenant = caller.admin.tenant;
    let signing_secret = SigningSecret::generate().map_err(ApiError::unexpected)?;
    let secret =
        caller.keys.seal(id, &signing_secret).map_err(|_| ApiError::unexpected("a secret could not be sealed"))?;
    let new = NewWebhook { id, settings, secret };
    let webhook =
        match caller.ledger.webhook_create(&caller.admin, &new, caller.most).await.map_err(ApiError::of_change)? {
            Registration::Made(webhook) => webhook,
            Registration::Exists => return Err(ApiError::RegisteredBefore),
            Registration::TooMany => return Err(ApiError::TooManyWebhooks(caller.most.webhooks)),
            Registration::TooManyDeleted => return Err(ApiError::TooManyDeleted(caller.most.deleted)),
        };
    tracing::info!(webhook = %id, %tenant, "a webhook was registered");
    Ok((*webhook, signing_secret))
}

/// One of the tenant's webhooks. An unknown one and another tenant's are answered alike.
pub(crate) async fn find(caller: &Caller, id: WebhookId) -> Result<Webhook, ApiError> {
    caller.ledger.webhook_find(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// The tenant's webhook, deleted or not.
pub(crate) async fn known(caller: &Caller, id: WebhookId) -> Result<OwnWebhook, ApiError> {
    caller.ledger.webhook_known(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// One of the tenant's deleted webhooks.
pub(crate) async fn deleted(caller: &Caller, id: WebhookId) -> Result<DeletedWebhook, ApiError> {
    caller.ledger.webhook_deleted(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// Changes settings. Activation wakes the outbox relay, which publishes the held jobs at a limited rate.
pub(crate) async fn change(
    caller: &Caller,
    id: WebhookId,
    change: impl FnOnce(&mut WebhookSettings) -> Checked<()> + Send,
) -> Result<Webhook, ApiError> {
    let mut was_active = true;
    let change = |settings: &mut WebhookSettings| {
        was_active = settings.is_active;
        change(settings)
    };
    let changed = caller.ledger.webhook_change(&caller.admin, id, change).await.map_err(ApiError::of_change)?;
    let webhook = changed.map_err(ApiError::Fields)?.ok_or(ApiError::NotFound)?;
    let is_active = webhook.settings.is_active;
    if is_active && !was_active {
        caller.wakes.activations.notify_one();
    }
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, is_active, "a webhook was changed");
    Ok(webhook)
}

/// Deletes a webhook. Its waiting deliveries count as cancelled at once, and its history stays readable.
pub(crate) async fn delete(caller: &Caller, id: WebhookId) -> Result<(), ApiError> {
    if !caller.ledger.webhook_delete(&caller.admin, id).await.map_err(ApiError::of_change)? {
        return Err(ApiError::NotFound);
    }
    caller.wakes.cancellations.notify_one();
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, "a webhook was deleted");
    Ok(())
}

/// Wakes the outbox relay, which cancels in steps what waits now. What comes later is delivered.
pub(crate) async fn cancel(caller: &Caller, id: WebhookId) -> Result<(), ApiError> {
    match caller.ledger.webhook_cancel(&caller.admin, id).await.map_err(ApiError::of_change)? {
        Cancellation::NotFound => return Err(ApiError::NotFound),
        Cancellation::Begun => caller.wakes.cancellations.notify_one(),
    }
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, "the waiting deliveries are cancelled");
    Ok(())
}
