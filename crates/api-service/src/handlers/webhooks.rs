//! `/api/v1/webhooks/` (specification, sections 4.1 and 4.2).

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{WebhookId, time_text::written};
use ledger::{Backlog, Page, Webhook, WebhookHealth, WebhookSettings};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    calls::webhooks,
    http::{Answer, Body, Caller, Id, List, Query, cut},
    request::{Change, change as change_settings},
};

/// Registers a webhook. Only this answer holds its secret.
pub(crate) async fn create(caller: Caller, Body(settings): Body<WebhookSettings>) -> Answer {
    let id = WebhookId::from(Uuid::now_v7());
    let (webhook, secret) = webhooks::register(&caller, id, settings).await?;
    let mut created = view(&webhook);
    created["signing_secret"] = secret.expose().into();
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/webhooks/{id}/"))).json(created))
}

/// The tenant's webhooks with their health, oldest first.
pub(crate) async fn list(caller: Caller, Query(Page { after, limit }, (), cursors): Query<WebhookId>) -> Answer {
    // One more than asked for shows whether there is a next page.
    let listed = caller.ledger.webhook_list(caller.admin.tenant, Page { after, limit: limit + 1 }).await?;
    let (listed, next_cursor) = cut(listed, limit, cursors, |webhook| webhook.id.as_uuid());
    Ok(HttpResponse::Ok().json(List { data: listed.iter().map(view).collect(), next_cursor }))
}

/// One of the tenant's webhooks. A malformed id, an unknown one and another tenant's are answered alike.
pub(crate) async fn read(caller: Caller, Id(id): Id<WebhookId>) -> Answer {
    Ok(HttpResponse::Ok().json(view(&webhooks::find(&caller, id).await?)))
}

/// Changes the given fields.
pub(crate) async fn change(caller: Caller, Id(id): Id<WebhookId>, Body(Change(members)): Body<Change>) -> Answer {
    let changed = webhooks::change(&caller, id, |settings| change_settings(&members, &caller.rules, settings)).await?;
    Ok(HttpResponse::Ok().json(view(&changed)))
}

/// Deletes a webhook.
pub(crate) async fn delete(caller: Caller, Id(id): Id<WebhookId>) -> Answer {
    webhooks::delete(&caller, id).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Cancels the deliveries that wait now, in steps. The webhook stays.
pub(crate) async fn cancel(caller: Caller, Id(webhook): Id<WebhookId>, Body(()): Body<()>) -> Answer {
    webhooks::cancel(&caller, webhook).await?;
    Ok(HttpResponse::Accepted().json(json!({"state": "running"})))
}

/// A webhook without its secret (specification, section 2.1).
#[derive(Serialize)]
struct View<'a> {
    id: WebhookId,
    #[serde(flatten)]
    settings: &'a WebhookSettings,
    #[serde(flatten)]
    state: Value,
}

fn view(webhook: &Webhook) -> Value {
    let Backlog { waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued } = webhook.backlog;
    let WebhookHealth { last_success_at, failure_count, failing_since, last_failure_at, last_failure } =
        &webhook.health;
    let failure = |(at, error)| json!({"at": written(at), "error": error});
    let state = json!({
        "created_at": written(webhook.created_at),
        "updated_at": written(webhook.updated_at),
        "last_success_at": last_success_at.and_then(written),
        "failure_count": failure_count,
        "failing_since": failing_since.and_then(written),
        "last_failure": last_failure_at.zip(last_failure.as_ref()).map(failure),
        "next_attempt_at": next_attempt_at.and_then(written),
        "deliveries": {"waiting": waiting, "dropped": dropped, "skipped": skipped},
        "is_cancelling": is_cancelling,
        "is_queued": is_queued,
    });
    json!(View { id: webhook.id, settings: &webhook.settings, state })
}
