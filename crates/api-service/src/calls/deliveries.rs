//! The log of deliveries, and sending one of them again.

use std::time::Duration;

use domain::{DeliveryId, WebhookId};
use ledger::{Actor, Attempt, Delivery, DeliveryFilter, DeliveryPage, OwnWebhook, Page, Resend};

use super::webhooks;
use crate::{problem::ApiError, state::State};

/// How long a page's entries are searched for: well below what a request may take.
const BUDGET: Duration = Duration::from_millis(30);

/// One delivery, with its body and every attempt.
pub(crate) struct Detail {
    pub(crate) delivery: Delivery,
    pub(crate) body: Vec<u8>,
    pub(crate) attempts: Vec<Attempt>,
}

/// A page of a webhook's log, newest event first. The webhook may be deleted.
pub(crate) async fn list(
    state: &State,
    webhook: OwnWebhook,
    filter: DeliveryFilter,
    page: Page<DeliveryId>,
) -> Result<DeliveryPage, ApiError> {
    Ok(state.ledger.delivery_list(webhook, filter, page, BUDGET).await?)
}

/// One delivery.
pub(crate) async fn find(
    state: &State,
    admin: &Actor,
    webhook: OwnWebhook,
    id: DeliveryId,
) -> Result<Detail, ApiError> {
    let mut delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let body = state.ledger.body_find(admin.tenant, &delivery).await?.ok_or(ApiError::NotFound)?;
    let attempts = state.ledger.attempt_list(id).await?;
    // An attempt that was recorded between the two reads has changed the delivery.
    if attempts.last().is_some_and(|last| last.attempt > delivery.attempts) {
        delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    }
    Ok(Detail { delivery, body, attempts })
}

/// The webhook of one of the tenant's deliveries.
pub(crate) async fn webhook_of(state: &State, admin: &Actor, id: DeliveryId) -> Result<Option<OwnWebhook>, ApiError> {
    Ok(state.ledger.delivery_webhook(admin.tenant, id).await?)
}

/// Sends a delivery again, with the same id and body. The call is idempotent while the delivery waits for the first
/// attempt of a run: two requests make one run. If the webhook is paused, the job is held. A delivery whose day ended
/// `retention.keep` ago or earlier is rejected: retention may drop that day at any moment.
pub(crate) async fn resend(
    state: &State,
    admin: &Actor,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Delivery, ApiError> {
    let webhook = webhooks::known(state, admin, webhook).await?;
    state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    state.outbox.check().map_err(ApiError::BrokerAway)?;
    match state.ledger.delivery_resend(admin, webhook.id(), id, state.keep).await? {
        Resend::NotFound => return Err(ApiError::NotFound),
        Resend::TooOld => return Err(ApiError::TooOld),
        Resend::Cancelling => return Err(ApiError::Cancelling),
        Resend::Waiting => {}
        Resend::Begun(begun) => {
            if let Err(error) = state.outbox.publish(&begun.batch).await
                && state.ledger.resend_undo(&begun).await?
            {
                return Err(ApiError::BrokerAway(error));
            }
            tracing::info!(delivery = %id, webhook = %webhook.id(), tenant = %admin.tenant, "a delivery is sent again");
        }
    }
    accepted(state, webhook, id).await
}

/// A delivery whose job is published or in the outbox.
pub(super) async fn accepted(state: &State, webhook: OwnWebhook, id: DeliveryId) -> Result<Delivery, ApiError> {
    state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)
}
