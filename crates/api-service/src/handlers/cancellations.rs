//! `POST /api/v1/webhooks/{id}/cancel/`: what waits is cancelled, and the webhook stays.

use actix_web::HttpResponse;
use domain::WebhookId;
use serde_json::json;

use super::body::Body;
use crate::{caller::Caller, calls, problem::Answer, request::Id};

/// Cancels in steps what waits now.
pub(crate) async fn create(caller: Caller, Id(webhook): Id<WebhookId>, Body(()): Body<()>) -> Answer {
    calls::cancellations::cancel(&caller, webhook).await?;
    Ok(HttpResponse::Accepted().json(json!({"state": "running"})))
}
