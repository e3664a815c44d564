//! `/api/v1/webhooks/{id}/deliveries/`: the delivery log. It shows past attempts and what is still to come.

mod view;

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{DeliveryId, WebhookId};
use ledger::{Delivery, DeliveryFilter};
use time::OffsetDateTime;

use self::view::{DeliveryView, DetailView};
use crate::{
    caller::Caller,
    calls::{deliveries, webhooks},
    problem::{Answer, ApiError},
    request::{Id, List, Query},
};

/// The deliveries of a webhook, deleted or not, newest event first. An unknown webhook counts before a faulty query.
pub(crate) async fn list(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<DeliveryId, DeliveryFilter>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Query(page, filter, cursors) = query?;
    let page = deliveries::list(&caller, webhook, filter, page).await?;
    let next_cursor = page.next.map(|last| cursors.after(last.as_uuid()));
    let now = OffsetDateTime::now_utc();
    let view = |delivery| DeliveryView::of(webhook.id(), delivery, !caller.kept.has_body(delivery, now));
    let data = page.deliveries.iter().map(view).collect();
    Ok(HttpResponse::Ok().json(List { data, next_cursor }))
}

/// One delivery, with its request and every attempt.
pub(crate) async fn read(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let found = deliveries::find(&caller, webhook, id).await?;
    Ok(HttpResponse::Ok().json(DetailView::of(webhook.id(), &found.delivery, found.body.as_deref(), &found.attempts)))
}

/// 202 with a delivery whose job is in the outbox, or published already.
pub(super) fn accepted(webhook: WebhookId, delivery: &Delivery) -> HttpResponse {
    let location = format!("/api/v1/webhooks/{webhook}/deliveries/{}/", delivery.id);
    HttpResponse::Accepted().insert_header((LOCATION, location)).json(DeliveryView::of(webhook, delivery, false))
}
