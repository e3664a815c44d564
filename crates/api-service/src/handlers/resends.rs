//! `POST …/resend/`: a fresh run of the schedule for one delivery.

use actix_web::web::Data;
use domain::{DeliveryId, WebhookId};
use ledger::Resend;

use super::{body::Body, deliveries::accepted, webhooks};
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::Id,
    state::State,
};

/// Sends a delivery again, with the same id and body. The call is idempotent while the delivery waits for the first
/// attempt of a run: two requests make one run. If the webhook is paused, the job is held. A delivery whose day ended
/// `retention.keep` ago or earlier is rejected: retention may drop that day at any moment. A faulty body counts before
/// an unknown webhook.
pub(crate) async fn create(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    Body(()): Body<()>,
) -> Answer {
    let webhook = webhooks::known(&state, &admin, webhook).await?;
    state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    state.outbox.check().map_err(ApiError::BrokerAway)?;
    match state.ledger.delivery_resend(&admin, webhook.id(), id, state.keep).await? {
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
    accepted(&state, webhook, id).await
}
