//! Registering, listing, changing and deleting webhooks.

use domain::WebhookId;
use ledger::{Actor, NewWebhook, OwnWebhook, Page, Webhook, WebhookChange};
use signing::SigningSecret;

use crate::{problem::ApiError, request::Registration, state::State};

/// Registers a webhook, and returns its secret with it.
pub(crate) async fn register(
    state: &State,
    admin: &Actor,
    id: WebhookId,
    Registration { name, url, events }: Registration,
) -> Result<(Webhook, SigningSecret), ApiError> {
    let tenant = admin.tenant;
    let signing_secret = SigningSecret::generate().map_err(ApiError::unexpected)?;
    let secret =
        state.keys.seal(id, &signing_secret).map_err(|_| ApiError::unexpected("a secret could not be sealed"))?;
    let new = NewWebhook { id, name, url: url.as_str().to_owned(), events, secret };
    let webhook = match state.ledger.webhook_create(admin, &new, state.most).await? {
        ledger::Registration::Made(webhook) => webhook,
        ledger::Registration::Exists => return Err(ApiError::RegisteredBefore),
        ledger::Registration::TooMany => return Err(ApiError::TooManyWebhooks(state.most.webhooks)),
        ledger::Registration::TooManyDeleted => return Err(ApiError::TooManyDeleted(state.most.deleted)),
    };
    tracing::info!(webhook = %id, %tenant, "a webhook was registered");
    Ok((*webhook, signing_secret))
}

/// The tenant's webhooks with their health, oldest first.
pub(crate) async fn list(state: &State, admin: &Actor, page: Page<WebhookId>) -> Result<Vec<Webhook>, ApiError> {
    Ok(state.ledger.webhook_list(admin.tenant, page).await?)
}

/// One of the tenant's webhooks. An unknown one and another tenant's are answered alike.
pub(crate) async fn find(state: &State, admin: &Actor, id: WebhookId) -> Result<Webhook, ApiError> {
    state.ledger.webhook_find(admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// The tenant's webhook, deleted or not.
pub(crate) async fn known(state: &State, admin: &Actor, id: WebhookId) -> Result<OwnWebhook, ApiError> {
    state.ledger.webhook_known(admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// Changes the given fields. Activation wakes the outbox relay, which publishes the held jobs at a limited rate.
pub(crate) async fn change(
    state: &State,
    admin: &Actor,
    id: WebhookId,
    change: &WebhookChange,
) -> Result<Webhook, ApiError> {
    let webhook = state.ledger.webhook_change(admin, id, change).await?.ok_or(ApiError::NotFound)?;
    if change.is_active == Some(true) {
        state.outbox.activations.notify_one();
    }
    tracing::info!(webhook = %id, tenant = %admin.tenant, is_active = webhook.is_active, "a webhook was changed");
    Ok(webhook)
}

/// Deletes a webhook. Its waiting deliveries count as cancelled at once, and its history stays readable.
pub(crate) async fn delete(state: &State, admin: &Actor, id: WebhookId) -> Result<(), ApiError> {
    if !state.ledger.webhook_delete(admin, id).await? {
        return Err(ApiError::NotFound);
    }
    state.outbox.cancellations.notify_one();
    tracing::info!(webhook = %id, tenant = %admin.tenant, "a webhook was deleted");
    Ok(())
}
