//! `/api/v1/webhooks/` (specification, sections 4.1 and 4.2).

mod registration;
mod view;

use actix_web::{HttpResponse, http::header::LOCATION, web::Data};
use domain::WebhookId;
use ledger::{NewWebhook, OwnWebhook, Page, WebhookChange};
use signing::SigningSecret;
use uuid::Uuid;

use self::{
    registration::Registration,
    view::{CreatedView, WebhookView},
};
use super::body::Body;
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::{Id, List, Query, cut},
    state::State,
};

/// Registers a webhook. Only this answer holds its secret.
pub(crate) async fn create(
    state: Data<State>,
    admin: Administrator,
    Body(Registration { name, url, events }): Body<Registration>,
) -> Answer {
    let (id, tenant) = (WebhookId::from(Uuid::now_v7()), admin.tenant);
    let signing_secret = SigningSecret::generate().map_err(ApiError::unexpected)?;
    let secret =
        state.keys.seal(id, &signing_secret).map_err(|_| ApiError::unexpected("a secret could not be sealed"))?;
    let new = NewWebhook { id, name, url: url.as_str().to_owned(), events, secret };
    let webhook = match state.ledger.webhook_create(&admin, &new, state.most).await? {
        ledger::Registration::Made(webhook) => webhook,
        ledger::Registration::TooMany => return Err(ApiError::TooManyWebhooks(state.most.webhooks)),
        ledger::Registration::TooManyDeleted => return Err(ApiError::TooManyDeleted(state.most.deleted)),
    };
    tracing::info!(webhook = %id, %tenant, "a webhook was registered");
    let created = CreatedView { webhook: WebhookView::of(&webhook), signing_secret: signing_secret.expose() };
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/webhooks/{id}/"))).json(created))
}

/// The tenant's webhooks with their health, oldest first.
pub(crate) async fn list(
    state: Data<State>,
    admin: Administrator,
    Query(Page { after, limit }, ()): Query<WebhookId>,
) -> Answer {
    // One more than asked for shows whether there is a next page.
    let webhooks = state.ledger.webhook_list(admin.tenant, Page { after, limit: limit + 1 }).await?;
    let (webhooks, next_cursor) = cut(webhooks, limit, |webhook| webhook.id.as_uuid());
    Ok(HttpResponse::Ok().json(List { data: webhooks.iter().map(WebhookView::of).collect(), next_cursor }))
}

/// One of the tenant's webhooks. A malformed id, an unknown one and another tenant's are answered alike.
pub(crate) async fn read(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>) -> Answer {
    let webhook = state.ledger.webhook_find(admin.tenant, id).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(WebhookView::of(&webhook)))
}

/// Changes the given fields. Activation wakes the outbox relay, which publishes the held jobs at a limited rate.
pub(crate) async fn change(
    state: Data<State>,
    admin: Administrator,
    Id(id): Id<WebhookId>,
    Body(change): Body<WebhookChange>,
) -> Answer {
    let webhook = state.ledger.webhook_change(&admin, id, &change).await?.ok_or(ApiError::NotFound)?;
    if change.is_active == Some(true) {
        state.outbox.activations.notify_one();
    }
    tracing::info!(webhook = %id, tenant = %admin.tenant, is_active = webhook.is_active, "a webhook was changed");
    Ok(HttpResponse::Ok().json(WebhookView::of(&webhook)))
}

/// Deletes a webhook. Its waiting deliveries count as cancelled at once, and its history stays readable.
pub(crate) async fn delete(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>) -> Answer {
    if !state.ledger.webhook_delete(&admin, id).await? {
        return Err(ApiError::NotFound);
    }
    state.outbox.cancellations.notify_one();
    tracing::info!(webhook = %id, tenant = %admin.tenant, "a webhook was deleted");
    Ok(HttpResponse::NoContent().finish())
}

/// The tenant's webhook, deleted or not.
pub(super) async fn known(state: &State, admin: &Administrator, id: WebhookId) -> Result<OwnWebhook, ApiError> {
    state.ledger.webhook_known(admin.tenant, id).await?.ok_or(ApiError::NotFound)
}
