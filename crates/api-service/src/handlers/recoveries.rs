//! `/api/v1/webhooks/{id}/recover/`: recoveries. The outbox relay sends every dropped delivery since a time again.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::LOCATION,
    web::{Data, Path, Payload, ReqData},
};
use domain::{Timestamp, WebhookId};
use ledger::Recovery;
use serde::Serialize;
use time::{OffsetDateTime, serde::rfc3339};
use uuid::Uuid;

use super::webhooks;
use crate::{
    authentication::Administrator,
    problem::ApiError,
    request::{
        fields::{Checked, Fields, timestamp},
        json::{self, Members},
        path,
    },
    state::State,
};

/// A recovery and its progress.
#[derive(Serialize)]
struct RecoveryView {
    id: Uuid,
    #[serde(with = "rfc3339")]
    since: OffsetDateTime,
    state: &'static str,
    /// How many deliveries have begun a fresh run.
    resent: i32,
    #[serde(with = "rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "rfc3339::option")]
    finished_at: Option<OffsetDateTime>,
}

/// Begins a recovery, or answers with the one that is running.
pub(crate) async fn begin(
    state: Data<State>,
    admin: ReqData<Administrator>,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let id: WebhookId = path::id(&id)?;
    let members = json::members(&request, payload, state.body_limit).await?;
    let since = since(&members).map_err(ApiError::Fields)?.as_datetime();
    if since > OffsetDateTime::now_utc() {
        return Err(ApiError::field("since", "in_the_future", "must not be in the future"));
    }
    let recovery = state.ledger.recovery_create(admin.tenant, id, since).await?.ok_or(ApiError::NotFound)?;
    state.outbox.recoveries.notify_one();
    tracing::info!(recovery = %recovery.id, webhook = %id, tenant = %admin.tenant, "dropped deliveries are recovered");
    let location = format!("/api/v1/webhooks/{id}/recover/{}/", recovery.id);
    Ok(HttpResponse::Accepted().insert_header((LOCATION, location)).json(RecoveryView::of(&recovery)))
}

/// Answers with a recovery's progress.
pub(crate) async fn read(
    state: Data<State>,
    admin: ReqData<Administrator>,
    ids: Path<(String, String)>,
) -> Result<HttpResponse, ApiError> {
    let (webhook, id) = ids.into_inner();
    let webhook = webhooks::known(&state, &admin, &webhook).await?;
    let recovery = state.ledger.recovery_find(webhook, path::id(&id)?).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(RecoveryView::of(&recovery)))
}

fn since(members: &Members) -> Checked<Timestamp> {
    let mut fields = Fields::of(members);
    let since = fields.required("since", |value| timestamp("since", value));
    fields.finish(&["since"], since)
}

impl RecoveryView {
    const fn of(recovery: &Recovery) -> Self {
        Self {
            id: recovery.id,
            since: recovery.since,
            state: if recovery.finished_at.is_some() { "done" } else { "running" },
            resent: recovery.resent,
            created_at: recovery.created_at,
            finished_at: recovery.finished_at,
        }
    }
}
