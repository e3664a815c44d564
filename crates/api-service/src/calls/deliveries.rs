//! The log of deliveries, and sending one of them again.

use std::{collections::BTreeSet, time::Duration};

use domain::{DeliveryId, WebhookId};
use ledger::{Attempt, Delivery, DeliveryFilter, DeliveryPage, OwnWebhook, Page, Resend};

use crate::http::{ApiError, Caller};

/// How long a page's entries are searched for: well below what a request may take.
const BUDGET: Duration = Duration::from_millis(30);

/// One delivery, with its body and every attempt.
pub(crate) struct Detail {
    pub(crate) delivery: Delivery,
    /// `None` if it has expired.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) attempts: Vec<Attempt>,
}

/// A page of a webhook's log, newest event first. The webhook may be deleted.
pub(crate) async fn list(
    caller: &Caller,
    webhook: OwnWebhook,
    filter: DeliveryFilter,
    page: Page<DeliveryId>,
) -> Result<DeliveryPage, ApiError> {
    Ok(caller.ledger.delivery_list(webhook, filter, page, BUDGET).await?)
}

/// Those of the deliveries whose bodies are kept.
pub(crate) async fn bodies(caller: &Caller, deliveries: &[Delivery]) -> Result<BTreeSet<DeliveryId>, ApiError> {
    Ok(caller.ledger.bodies_find(deliveries).await?)
}

/// One delivery.
pub(crate) async fn find(caller: &Caller, webhook: OwnWebhook, id: DeliveryId) -> Result<Detail, ApiError> {
    let mut delivery = caller.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let body = caller.ledger.body_find(caller.admin.tenant, &delivery).await?;
    let attempts = caller.ledger.attempt_list(id).await?;
    // An attempt that was recorded between the two reads has changed the delivery.
    if attempts.last().is_some_and(|last| last.attempt > delivery.attempts) {
        delivery = caller.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    }
    Ok(Detail { delivery, body, attempts })
}

/// Sends a delivery again, with the same id and body: the outbox relay publishes its job. The call is idempotent while
/// the delivery waits for the first attempt of a run: two requests make one run. If the webhook is paused, the job is
/// held. A delivery whose day ended `retention.keep` ago (`retention.bodies`, if that is shorter) or earlier is rejected: the
/// day would go before the schedule ends. So is one whose body is gone.
pub(crate) async fn resend(caller: &Caller, webhook: WebhookId, id: DeliveryId) -> Result<Delivery, ApiError> {
    let resent = caller.ledger.delivery_resend(&caller.admin, webhook, id, caller.kept).await;
    let delivery = match resent.map_err(ApiError::of_change)? {
        Resend::NotFound => return Err(ApiError::NotFound),
        Resend::TooOld => return Err(ApiError::TooOld),
        Resend::BodyExpired => return Err(ApiError::BodyExpired),
        Resend::TooOften => return Err(ApiError::TooOften),
        Resend::Cancelling => return Err(ApiError::Cancelling),
        Resend::Accepted(delivery) => delivery,
    };
    caller.wakes.jobs.notify_one();
    tracing::info!(delivery = %id, %webhook, tenant = %caller.admin.tenant, "a delivery is sent again");
    Ok(delivery)
}
