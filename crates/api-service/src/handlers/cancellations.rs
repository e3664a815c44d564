//! `POST /api/v1/webhooks/{id}/cancel/`: what waits is cancelled, and the webhook stays.

use actix_web::{HttpResponse, web::Data};
use domain::WebhookId;
use ledger::Cancellation;
use serde_json::json;

use super::body::Body;
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::Id,
    state::State,
};

/// Wakes the outbox relay, which cancels in steps what waits now. What comes later is delivered.
pub(crate) async fn create(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Body(()): Body<()>,
) -> Answer {
    match state.ledger.webhook_cancel(&admin, webhook).await? {
        Cancellation::NotFound => return Err(ApiError::NotFound),
        Cancellation::Begun => state.outbox.cancellations.notify_one(),
    }
    tracing::info!(%webhook, tenant = %admin.tenant, "what waits is cancelled");
    Ok(HttpResponse::Accepted().json(json!({"state": "running"})))
}
