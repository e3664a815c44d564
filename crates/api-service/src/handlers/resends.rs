//! `POST …/resend/`: a fresh run of the schedule for one delivery.

use actix_web::web::Data;
use domain::{DeliveryId, WebhookId};

use super::{body::Body, deliveries::accepted};
use crate::{authentication::Administrator, calls, problem::Answer, request::Id, state::State};

/// Sends a delivery again. A faulty body counts before an unknown webhook.
pub(crate) async fn create(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    Body(()): Body<()>,
) -> Answer {
    Ok(accepted(webhook, &calls::deliveries::resend(&state, &admin, webhook, id).await?))
}
