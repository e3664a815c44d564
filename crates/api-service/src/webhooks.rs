//! `/api/v1/webhooks/` (specification, sections 4.1 and 4.2): the calls of the REST API, and the functions that these
//! share with the console's pages.

pub(crate) mod headers;
pub(crate) mod settings;

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{HeaderChange, WebhookId, time_text::written};
use ledger::{
    Backlog, DeletedWebhook, NewWebhook, OwnWebhook, Page, Webhook, WebhookFilter, WebhookHeaders, WebhookHealth,
    WebhookSettings,
};
use serde::Serialize;
use serde_json::{Value, json};
use signing::SigningSecret;
use uuid::Uuid;

use self::settings::{Change, Registration};
use crate::http::{
    ApiError, Body, Caller, Checked, HandlerResult, Id, IdempotencyKey, List, Precondition, Query, Violation, cut,
    list::{Filter, text, truth},
    tag,
};

impl Filter for WebhookFilter {
    const PARAMETER_NAMES: &str = "limit, cursor, external_id, name and deleted";

    fn take(&mut self, name: &str, value: &str) -> Option<Result<(), Violation>> {
        Some(match name {
            "external_id" => text(name, value).map(|id| self.external_id = Some(id)),
            "name" => text(name, value).map(|name| self.name = Some(name)),
            "deleted" => truth(name, value).map(|is_deleted| self.is_deleted = is_deleted),
            _ => return None,
        })
    }
}

/// Answers with the tenant's webhooks and their health, oldest first.
pub(crate) async fn list(
    caller: Caller,
    Query(Page { after, limit }, filter, cursors): Query<WebhookId, WebhookFilter>,
) -> HandlerResult {
    // One more than asked for shows whether there is a next page.
    let page = Page { after, limit: limit + 1 };
    let listed = caller.ledger.webhook_list(caller.admin.tenant, &filter, page).await?;
    let (listed, next_cursor) = cut(listed, limit, cursors, |webhook| webhook.id.as_uuid());
    Ok(HttpResponse::Ok().json(List { data: listed.iter().map(view).collect(), next_cursor }))
}

/// Registers a webhook. Only this answer holds its secret. A key registers one webhook, however often it is sent.
pub(crate) async fn post(
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(new): Body<Registration>,
) -> HandlerResult {
    let id = match key {
        Some(key) => WebhookId::derive(caller.admin.tenant, &key),
        None => Uuid::now_v7().into(),
    };
    let (webhook, secret) = register(&caller, id, new).await?;
    let mut created = view(&webhook);
    created["signing_secret"] = secret.expose().into();
    let location = (LOCATION, format!("/api/v1/webhooks/{id}/"));
    Ok(HttpResponse::Created().insert_header(location).insert_header(tag(webhook.updated_at)).json(created))
}

/// Registers a webhook, and returns its secret with it.
pub(crate) async fn register(
    caller: &Caller,
    id: WebhookId,
    Registration { settings, headers }: Registration,
) -> Result<(Webhook, SigningSecret), ApiError> {
    let tenant = caller.admin.tenant;
    let signing_secret = SigningSecret::generate().map_err(ApiError::unexpected)?;
    let unsealed = |_| ApiError::unexpected("a secret could not be sealed");
    let secret = caller.keys.seal(id, &signing_secret).map_err(unsealed)?;
    let sealed = caller.keys.seal_headers(id, &headers).map_err(unsealed)?;
    let new = NewWebhook { id, settings, secret, headers: WebhookHeaders { names: headers.names(), sealed } };
    let created = caller.ledger.webhook_create(&caller.admin, &new, caller.most).await;
    let webhook = created.map_err(ApiError::of_change)??;
    tracing::info!(webhook = %id, %tenant, "a webhook was registered");
    Ok((webhook, signing_secret))
}

/// Answers with one of the tenant's webhooks.
pub(crate) async fn get(caller: Caller, Id(id): Id<WebhookId>) -> HandlerResult {
    Ok(answer(&find(&caller, id).await?))
}

fn answer(webhook: &Webhook) -> HttpResponse {
    HttpResponse::Ok().insert_header(tag(webhook.updated_at)).json(view(webhook))
}

/// Finds one of the tenant's webhooks. An unknown webhook and another tenant's webhook are answered alike.
pub(crate) async fn find(caller: &Caller, id: WebhookId) -> Result<Webhook, ApiError> {
    caller.ledger.webhook_find(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// Finds the tenant's webhook, deleted or not.
pub(crate) async fn known(caller: &Caller, id: WebhookId) -> Result<OwnWebhook, ApiError> {
    caller.ledger.webhook_known(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// Finds one of the tenant's deleted webhooks.
pub(crate) async fn deleted(caller: &Caller, id: WebhookId) -> Result<DeletedWebhook, ApiError> {
    caller.ledger.webhook_deleted(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)
}

/// Changes the given fields if the condition holds, and answers with the webhook.
pub(crate) async fn patch(
    caller: Caller,
    Id(id): Id<WebhookId>,
    condition: Precondition,
    Body(Change(members)): Body<Change>,
) -> HandlerResult {
    let change_members = |settings: &mut _| settings::change(&members, &caller.rules, Some(id), settings);
    Ok(answer(&change(&caller, id, &condition, change_members).await?))
}

/// Changes settings and headers if the condition holds. Activation wakes the outbox relay, which publishes the held jobs at a limited rate.
pub(crate) async fn change(
    caller: &Caller,
    id: WebhookId,
    condition: &Precondition,
    change: impl FnOnce(&mut WebhookSettings) -> Checked<HeaderChange> + Send,
) -> Result<Webhook, ApiError> {
    let mut was_active = true;
    let change = |updated_at, settings: &mut WebhookSettings, headers: &WebhookHeaders| {
        condition.check(updated_at)?;
        was_active = settings.is_active;
        let url = settings.url.clone();
        let change = change(settings).map_err(ApiError::Fields)?;
        headers::changed(&caller.keys, id, headers, (&url, &settings.url), &change)
    };
    let changed = caller.ledger.webhook_change(&caller.admin, id, change).await.map_err(ApiError::of_change)?;
    let webhook = changed?.ok_or(ApiError::NotFound)?;
    let is_active = webhook.settings.is_active;
    if is_active && !was_active {
        caller.wakes.activations.notify_one();
    }
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, is_active, "a webhook was changed");
    Ok(webhook)
}

/// Deletes a webhook if the condition holds.
pub(crate) async fn delete(caller: Caller, Id(id): Id<WebhookId>, condition: Precondition) -> HandlerResult {
    remove(&caller, id, &condition).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Deletes a webhook if the condition holds. Its waiting deliveries count as cancelled immediately, and its history stays
/// readable.
pub(crate) async fn remove(caller: &Caller, id: WebhookId, condition: &Precondition) -> Result<(), ApiError> {
    let deleted = caller.ledger.webhook_delete(&caller.admin, id, |updated_at| condition.check(updated_at)).await;
    if !deleted.map_err(ApiError::of_change)?? {
        return Err(ApiError::NotFound);
    }
    caller.wakes.cancellations.notify_one();
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, "a webhook was deleted");
    Ok(())
}

/// Cancels the waiting deliveries in steps. The webhook stays.
pub(crate) async fn post_cancel(caller: Caller, Id(webhook): Id<WebhookId>, Body(()): Body<()>) -> HandlerResult {
    cancel(&caller, webhook).await?;
    Ok(HttpResponse::Accepted().json(json!({"state": "running"})))
}

/// Wakes the outbox relay, which cancels the waiting deliveries in steps. Later deliveries are sent.
pub(crate) async fn cancel(caller: &Caller, id: WebhookId) -> Result<(), ApiError> {
    caller.ledger.webhook_cancel(&caller.admin, id).await.map_err(ApiError::of_change)??;
    caller.wakes.cancellations.notify_one();
    tracing::info!(webhook = %id, tenant = %caller.admin.tenant, "the waiting deliveries are cancelled");
    Ok(())
}

/// A webhook without its secrets (specification, section 2.1).
#[derive(Serialize)]
struct View<'a> {
    id: WebhookId,
    #[serde(flatten)]
    settings: &'a WebhookSettings,
    header_names: &'a [String],
    #[serde(flatten)]
    state: Value,
}

fn view(webhook: &Webhook) -> Value {
    let Backlog { waiting, dropped, skipped, next_attempt_at, is_cancelling, is_queued, .. } = webhook.backlog;
    let WebhookHealth { last_success_at, failure_count, failing_since, last_failure_at, last_failure } =
        &webhook.health;
    let failure = |(at, error)| json!({"at": written(at), "error": error});
    let state = json!({
        "created_at": written(webhook.created_at),
        "updated_at": written(webhook.updated_at),
        "deleted_at": webhook.deleted_at.and_then(written),
        "last_success_at": last_success_at.and_then(written),
        "failure_count": failure_count,
        "failing_since": failing_since.and_then(written),
        "last_failure": last_failure_at.zip(last_failure.as_ref()).map(failure),
        "next_attempt_at": next_attempt_at.and_then(written),
        "deliveries": {"waiting": waiting, "dropped": dropped, "skipped": skipped},
        "is_cancelling": is_cancelling,
        "is_queued": is_queued,
    });
    json!(View { id: webhook.id, settings: &webhook.settings, header_names: &webhook.header_names, state })
}
