//! `/api/v1/webhooks/{id}/recover/`: recoveries. The outbox relay sends every dropped delivery since a time again.

use actix_web::{HttpResponse, http::header::LOCATION, web::Data};
use domain::WebhookId;
use ledger::Recovery;
use serde::Serialize;
use time::{OffsetDateTime, serde::rfc3339};
use uuid::Uuid;

use super::{
    body::{Body, FromBody},
    webhooks,
};
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::{Checked, Fields, Id, Members, timestamp, violation},
    state::{Rules, State},
};

/// Deliveries of events from this time on are recovered.
pub(crate) struct Since(OffsetDateTime);

impl FromBody for Since {
    fn read(members: &Members, _: &Rules) -> Checked<Self> {
        let mut fields = Fields::of(members);
        let since = fields.required("since", |value| timestamp("since", value));
        let since = fields.finish(&["since"], since)?.as_datetime();
        if since > OffsetDateTime::now_utc() {
            return violation("since", "in_the_future", "must not be in the future");
        }
        Ok(Self(since))
    }
}

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
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Body(Since(since)): Body<Since>,
) -> Answer {
    let recovery = state.ledger.recovery_create(admin.tenant, webhook, since).await?.ok_or(ApiError::NotFound)?;
    state.outbox.recoveries.notify_one();
    tracing::info!(recovery = %recovery.id, %webhook, tenant = %admin.tenant, "dropped deliveries are recovered");
    let location = format!("/api/v1/webhooks/{webhook}/recover/{}/", recovery.id);
    Ok(HttpResponse::Accepted().insert_header((LOCATION, location)).json(RecoveryView::of(&recovery)))
}

/// Answers with a recovery's progress.
pub(crate) async fn read(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<Uuid>,
) -> Answer {
    let webhook = webhooks::known(&state, &admin, webhook).await?;
    let recovery = state.ledger.recovery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(RecoveryView::of(&recovery)))
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
