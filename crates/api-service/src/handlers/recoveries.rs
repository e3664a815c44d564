//! `/api/v1/webhooks/{id}/recover/`: recoveries. The outbox relay sends what was dropped or skipped in a span of time
//! again.

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{WebhookId, time_text::written};
use ledger::{NewRecovery, Recovery};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    calls::{
        recoveries::{self, Beginning},
        webhooks,
    },
    http::{Answer, ApiError, Body, Caller, Id},
    request::RecoveryRequest,
};

/// Begins a recovery, or answers only with how many deliveries one would send.
pub(crate) async fn begin(caller: Caller, Id(webhook): Id<WebhookId>, Body(request): Body<RecoveryRequest>) -> Answer {
    let wanted = match request {
        RecoveryRequest::Recover(wanted) => wanted,
        RecoveryRequest::Count(wanted) => return count(&caller, webhook, &wanted).await,
    };
    let recovery = match recoveries::begin(&caller, webhook, &wanted).await? {
        Beginning::Begun(recovery) => recovery,
        Beginning::Running(recovery) => return Err(ApiError::Recovering(path(webhook, recovery.id))),
    };
    let location = path(webhook, recovery.id);
    Ok(HttpResponse::Accepted().insert_header((LOCATION, location)).json(view(&recovery)))
}

fn path(webhook: WebhookId, recovery: Uuid) -> String {
    format!("/api/v1/webhooks/{webhook}/recover/{recovery}/")
}

async fn count(caller: &Caller, webhook: WebhookId, wanted: &NewRecovery) -> Answer {
    let counted = recoveries::count(caller, webhook, wanted).await?;
    Ok(HttpResponse::Ok().json(json!({"count": counted.count, "is_exact": counted.is_exact})))
}

/// Answers with a recovery's progress.
pub(crate) async fn read(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<Uuid>) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let recovery = caller.ledger.recovery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(view(&recovery)))
}

/// A recovery and its progress.
fn view(recovery: &Recovery) -> Value {
    json!({
        "id": recovery.id,
        "since": written(recovery.since),
        "until": recovery.until.and_then(written),
        "states": recovery.states.iter().map(|state| state.as_str()).collect::<Value>(),
        "state": if recovery.finished_at.is_some() { "done" } else { "running" },
        "resent": recovery.resent,
        "created_at": written(recovery.created_at),
        "finished_at": recovery.finished_at.and_then(written),
    })
}
