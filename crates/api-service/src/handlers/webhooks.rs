//! `/api/v1/webhooks/` (specification, sections 4.1 and 4.2).

mod view;

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::WebhookId;
use ledger::{Page, WebhookChange};
use uuid::Uuid;

use self::view::{CreatedView, WebhookView};
use super::body::{Body, FromBody};
use crate::{
    caller::Caller,
    calls::webhooks,
    problem::Answer,
    request::{Checked, Id, List, Members, Query, Registration, cut, read_change},
    state::Rules,
};

impl FromBody for Registration {
    fn read(members: &Members, rules: &Rules) -> Checked<Self> {
        Self::read(members, rules)
    }
}

impl FromBody for WebhookChange {
    fn read(members: &Members, rules: &Rules) -> Checked<Self> {
        read_change(members, rules)
    }
}

/// Registers a webhook. Only this answer holds its secret.
pub(crate) async fn create(caller: Caller, Body(registration): Body<Registration>) -> Answer {
    let id = WebhookId::from(Uuid::now_v7());
    let (webhook, secret) = webhooks::register(&caller, id, registration).await?;
    let created = CreatedView { webhook: WebhookView::of(&webhook), signing_secret: secret.expose() };
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/webhooks/{id}/"))).json(created))
}

/// The tenant's webhooks with their health, oldest first.
pub(crate) async fn list(caller: Caller, Query(Page { after, limit }, (), cursors): Query<WebhookId>) -> Answer {
    // One more than asked for shows whether there is a next page.
    let listed = webhooks::list(&caller, Page { after, limit: limit + 1 }).await?;
    let (listed, next_cursor) = cut(listed, limit, cursors, |webhook| webhook.id.as_uuid());
    Ok(HttpResponse::Ok().json(List { data: listed.iter().map(WebhookView::of).collect(), next_cursor }))
}

/// One of the tenant's webhooks. A malformed id, an unknown one and another tenant's are answered alike.
pub(crate) async fn read(caller: Caller, Id(id): Id<WebhookId>) -> Answer {
    Ok(HttpResponse::Ok().json(WebhookView::of(&webhooks::find(&caller, id).await?)))
}

/// Changes the given fields.
pub(crate) async fn change(caller: Caller, Id(id): Id<WebhookId>, Body(change): Body<WebhookChange>) -> Answer {
    Ok(HttpResponse::Ok().json(WebhookView::of(&webhooks::change(&caller, id, &change).await?)))
}

/// Deletes a webhook.
pub(crate) async fn delete(caller: Caller, Id(id): Id<WebhookId>) -> Answer {
    webhooks::delete(&caller, id).await?;
    Ok(HttpResponse::NoContent().finish())
}
