//! `POST /api/v1/webhooks/{id}/cancel/`: what waits is cancelled, and the webhook stays.

use actix_web::{HttpResponse, web::Data};
use domain::WebhookId;
use serde_json::json;

use super::body::Body;
use crate::{authentication::Administrator, calls, problem::Answer, request::Id, state::State};

/// Cancels in steps what waits now.
pub(crate) async fn create(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Body(()): Body<()>,
) -> Answer {
    calls::cancellations::cancel(&state, &admin, webhook).await?;
    Ok(HttpResponse::Accepted().json(json!({"state": "running"})))
}
