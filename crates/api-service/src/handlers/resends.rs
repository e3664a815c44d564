//! `POST …/resend/`: a fresh run of the schedule for one delivery.

use domain::{DeliveryId, WebhookId};

use super::{body::Body, deliveries::accepted};
use crate::{caller::Caller, calls, problem::Answer, request::Id};

/// Sends a delivery again. A faulty body counts before an unknown webhook.
pub(crate) async fn create(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    Body(()): Body<()>,
) -> Answer {
    Ok(accepted(webhook, &calls::deliveries::resend(&caller, webhook, id).await?))
}
