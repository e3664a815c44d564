//! `/api/v1/webhooks/{id}/recover/`: recoveries. The outbox relay resends deliveries that were dropped or skipped in a
//! period.

pub(crate) mod request;

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{WebhookId, time_text::written};
use ledger::{NewRecovery, Page, Recover, RecoverableCount, Recovery};
use serde_json::{Value, json};
use uuid::Uuid;

use self::request::RecoveryRequest;
use crate::{
    http::{ApiError, Body, Caller, HandlerResult, Id, List, Query, cut},
    webhooks,
};

/// Begins a recovery, or answers only with how many deliveries one would send.
pub(crate) async fn post(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Body(request): Body<RecoveryRequest>,
) -> HandlerResult {
    let wanted = match request {
        RecoveryRequest::Recover(wanted) => wanted,
        RecoveryRequest::Count(wanted) => {
            let counted = count(&caller, webhook, &wanted).await?;
            return Ok(HttpResponse::Ok().json(json!({
                "count": counted.total(),
                "dropped": counted.dropped,
                "skipped": counted.skipped,
                "is_exact": counted.is_exact,
            })));
        }
    };
    let path = |recovery: &Recovery| format!("/api/v1/webhooks/{webhook}/recover/{}/", recovery.id);
    match begin(&caller, webhook, &wanted).await? {
        Recover::Begun(recovery) => {
            Ok(HttpResponse::Accepted().insert_header((LOCATION, path(&recovery))).json(view(&recovery)))
        }
        Recover::Running(recovery) => Err(ApiError::Recovering(path(&recovery))),
    }
}

/// Begins a recovery, or finds the one that is running.
pub(crate) async fn begin(caller: &Caller, webhook: WebhookId, wanted: &NewRecovery) -> Result<Recover, ApiError> {
    let made = caller.ledger.recovery_create(&caller.admin, webhook, wanted, caller.kept.bodies).await;
    let made = made.map_err(ApiError::of_change)??;
    if let Recover::Begun(recovery) = &made {
        caller.wakes.recoveries.notify_one();
        tracing::info!(recovery = %recovery.id, %webhook, tenant = %caller.admin.tenant, "deliveries are recovered");
    }
    Ok(made)
}

/// Counts the deliveries that a recovery would resend.
pub(crate) async fn count(
    caller: &Caller,
    webhook: WebhookId,
    wanted: &NewRecovery,
) -> Result<RecoverableCount, ApiError> {
    let counted = caller.ledger.recoverable_count(caller.admin.tenant, webhook, wanted, caller.kept.bodies).await?;
    counted.ok_or(ApiError::NotFound)
}

/// Answers with a webhook's recoveries, newest first. An unknown webhook counts before a faulty query.
pub(crate) async fn list(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<Uuid>, ApiError>,
) -> HandlerResult {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Query(page, (), cursors) = query?;
    let found = caller.ledger.recovery_list(webhook, Page { limit: page.limit + 1, ..page }).await?;
    let (found, next_cursor) = cut(found, page.limit, cursors, |recovery| recovery.id);
    Ok(HttpResponse::Ok().json(List { data: found.iter().map(view).collect(), next_cursor }))
}

/// Stops a recovery. One that has ended stays as it is.
pub(crate) async fn delete(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<Uuid>) -> HandlerResult {
    Ok(HttpResponse::Ok().json(view(&stop(&caller, webhook, id).await?)))
}

/// Stops a recovery after its present step.
pub(crate) async fn stop(caller: &Caller, webhook: WebhookId, id: Uuid) -> Result<Recovery, ApiError> {
    let webhook = webhooks::known(caller, webhook).await?;
    let stopped = caller.ledger.recovery_stop(&caller.admin, webhook, id).await.map_err(ApiError::of_change)?;
    stopped.ok_or(ApiError::NotFound)
}

/// Answers with a recovery's progress.
pub(crate) async fn get(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<Uuid>) -> HandlerResult {
    let webhook = webhooks::known(&caller, webhook).await?;
    let recovery = caller.ledger.recovery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(view(&recovery)))
}

/// A recovery and its progress.
fn view(recovery: &Recovery) -> Value {
    json!({
        "id": recovery.id,
        "from": written(recovery.since),
        "to": recovery.until.and_then(written),
        "states": recovery.states.iter().map(|state| state.as_str()).collect::<Value>(),
        "event_types": recovery.event_types,
        "state": recovery.state(),
        "resent": recovery.resent,
        "created_at": written(recovery.created_at),
        "finished_at": recovery.finished_at.and_then(written),
    })
}
