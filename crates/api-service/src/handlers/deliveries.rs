//! `/api/v1/webhooks/{id}/deliveries/`: the delivery log. It shows past attempts and what is still to come.

mod filter;
mod view;

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path, ReqData},
};
use domain::DeliveryId;
use ledger::{OwnWebhook, Page};

use self::{
    filter::Filters,
    view::{DeliveryView, DetailView, ListView},
};
use super::webhooks;
use crate::{
    authentication::Administrator,
    problem::ApiError,
    request::{page, path},
    state::State,
};

/// How long a page's entries are searched for: well below what a request may take.
const BUDGET: Duration = Duration::from_millis(30);

/// The deliveries of a webhook, deleted or not, newest event first.
pub(crate) async fn list(
    state: Data<State>,
    admin: ReqData<Administrator>,
    id: Path<String>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let webhook = webhooks::known(&state, &admin, &id).await?;
    let (Page { after, limit }, Filters(filter)) = page::read(request.query_string())?;
    let page = state.ledger.delivery_list(webhook, filter, Page { after, limit }, BUDGET).await?;
    let next_cursor = page.next.map(|last| page::cursor_after(last.as_uuid()));
    let data = page.deliveries.iter().map(|delivery| DeliveryView::of(webhook.id(), delivery)).collect();
    Ok(HttpResponse::Ok().json(ListView { data, next_cursor }))
}

/// One delivery, with its request and every attempt.
pub(crate) async fn read(
    state: Data<State>,
    admin: ReqData<Administrator>,
    ids: Path<(String, String)>,
) -> Result<HttpResponse, ApiError> {
    let (webhook, id) = ids.into_inner();
    let webhook = webhooks::known(&state, &admin, &webhook).await?;
    let id: DeliveryId = path::id(&id)?;
    let delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let body = state.ledger.body_find(admin.tenant, &delivery).await?.ok_or(ApiError::NotFound)?;
    let attempts = state.ledger.attempt_list(id).await?;
    Ok(HttpResponse::Ok().json(DetailView::of(webhook.id(), &delivery, &body, &attempts)))
}

/// 202 with a delivery whose job is published or in the outbox.
pub(super) async fn accepted(state: &State, webhook: OwnWebhook, id: DeliveryId) -> Result<HttpResponse, ApiError> {
    let delivery = state.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let location = format!("/api/v1/webhooks/{}/deliveries/{id}/", webhook.id());
    let view = DeliveryView::of(webhook.id(), &delivery);
    Ok(HttpResponse::Accepted().insert_header((actix_web::http::header::LOCATION, location)).json(view))
}
