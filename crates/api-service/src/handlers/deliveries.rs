//! `/api/v1/webhooks/{id}/deliveries/`: the delivery log. It shows past attempts and what is still to come.

mod filter;
mod view;

use std::time::Duration;

use actix_web::{HttpResponse, http::header::LOCATION, web::Data};
use domain::{DeliveryId, WebhookId};
use ledger::{DeliveryFilter, OwnWebhook};

use self::view::{DeliveryView, DetailView};
use super::webhooks;
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::{Id, List, Query, cursor_after},
    state::State,
};

/// How long a page's entries are searched for: well below what a request may take.
const BUDGET: Duration = Duration::from_millis(30);

/// The deliveries of a webhook, deleted or not, newest event first. An unknown webhook counts before a faulty query.
pub(crate) async fn list(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<DeliveryId, DeliveryFilter>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&state, &admin, webhook).await?;
    let Query(page, filter) = query?;
    let page = state.ledger.delivery_list(webhook, filter, page, BUDGET).await?;
    let next_cursor = page.next.map(|last| cursor_after(last.as_uuid()));
    let data = page.deliveries.iter().map(|delivery| DeliveryView::of(webhook.id(), delivery)).collect();
    Ok(HttpResponse::Ok().json(List { data, next_cursor }))
}

/// One delivery, with its request and every attempt.
pub(crate) async fn read(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
) -> Answer {
    let webhook = webhooks::known(&state, &admin, webhook).await?;
    let delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let body = state.ledger.body_find(admin.tenant, &delivery).await?.ok_or(ApiError::NotFound)?;
    let attempts = state.ledger.attempt_list(id).await?;
    Ok(HttpResponse::Ok().json(DetailView::of(webhook.id(), &delivery, &body, &attempts)))
}

/// 202 with a delivery whose job is published or in the outbox.
pub(super) async fn accepted(state: &State, webhook: OwnWebhook, id: DeliveryId) -> Answer {
    let delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let location = format!("/api/v1/webhooks/{}/deliveries/{id}/", webhook.id());
    let view = DeliveryView::of(webhook.id(), &delivery);
    Ok(HttpResponse::Accepted().insert_header((LOCATION, location)).json(view))
}
