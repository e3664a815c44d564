//! The log of a webhook's deliveries, one delivery, and the forms that send a test and resend a delivery.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
};
use console::{Deliveries, DeliveryDetails, Done, LogQuery, Paths, Range, WebhookFrame};
use domain::{DeliveryId, WebhookId};
use ledger::DeliveryFilter;

use super::{Form, PageRequest, done, form::faults, framed, html, stats};
use crate::{
    deliveries::{self, test_delivery},
    http::{
        ApiError, Caller, Cursors, Given, HandlerResult, Id, Query, Trace, Violation,
        fields::{event_type, from_input},
    },
    webhooks,
};

/// The maximum of deliveries on a page of the log.
const PAGE_DELIVERIES: u16 = 40;

/// Answers with a webhook: its health, its statistics and its log.
pub(super) async fn log(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest) -> HandlerResult {
    let (own, webhook) = framed(&caller, id).await?;
    let range = Range::ALL.into_iter().find(|range| range.word == asked.first("range")).unwrap_or(Range::DAY);
    let stats = match &webhook {
        WebhookFrame::Live(_) => Some(stats::of(&caller, own, range, asked.frame.now).await?),
        WebhookFrame::Deleted(_) | WebhookFrame::Expired(_) => None,
    };
    let mut query = log_query(&asked);
    let (deliveries, next) = match read_log(&query, Cursors::of(&Paths::webhook(id))) {
        Ok(Query(page, filter, cursors)) => {
            let found = deliveries::search(&caller, Some(own), &filter, page).await?;
            (found.deliveries, found.next.map(|last| cursors.after(last.as_uuid())))
        }
        Err(violations) => {
            query.faults = faults(violations);
            (Vec::new(), None)
        }
    };
    let bodies = caller.ledger.bodies_find(&deliveries).await?;
    let page = Deliveries { webhook, stats, query, deliveries, bodies, next };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// The part of the log that an address asks for. The address of a delivery's page has that of the log which led there.
fn log_query(asked: &PageRequest) -> LogQuery {
    LogQuery {
        state: asked.first("state").to_owned(),
        event_type: asked.first("event_type").to_owned(),
        from: asked.first("from").to_owned(),
        until: asked.first("until").to_owned(),
        cursor: asked.first("cursor").to_owned(),
        range: asked.first("range").to_owned(),
        faults: Vec::new(),
    }
}

/// Reads the log's filter as the API does.
fn read_log(query: &LogQuery, cursors: Cursors) -> Result<Query<DeliveryId, DeliveryFilter>, Vec<Violation>> {
    let (from, until) = (from_input(&query.from), from_input(&query.until));
    let given = [
        ("state", &*query.state),
        ("event_type", &*query.event_type),
        ("occurred_after", &*from),
        ("occurred_before", &*until),
        ("cursor", &*query.cursor),
    ];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let mut read = Query::of(given.map(|(name, value)| (name.into(), value.into())), cursors)?;
    read.0.limit = PAGE_DELIVERIES;
    Ok(read)
}

/// Answers with one delivery.
pub(super) async fn delivery(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    asked: PageRequest,
) -> HandlerResult {
    let (own, webhook) = framed(&caller, webhook).await?;
    let found = deliveries::find(&caller, own, id).await?;
    let body = found.body.map(|body| String::from_utf8_lossy(&body).into_owned());
    let page =
        DeliveryDetails { webhook, delivery: found.delivery, body, attempts: found.attempts, log: log_query(&asked) };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// Answers with the body of a delivery, to download.
pub(super) async fn body(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>) -> HandlerResult {
    let own = webhooks::known(&caller, webhook).await?;
    let found = deliveries::find(&caller, own, id).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/json"))
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.json\"")))
        .body(found.body.ok_or(ApiError::NotFound)?))
}

/// Sends a test, of the chosen event type if there is one.
pub(super) async fn test(caller: Caller, Id(id): Id<WebhookId>, trace: Trace, form: Form) -> HandlerResult {
    let wish = match form.first("event_type") {
        "" => None,
        name => Some(event_type("event_type", &Given::Form(vec![name])).map_err(ApiError::Fields)?),
    };
    let delivery = test_delivery::send(&caller, id, wish, trace).await?;
    Ok(done(&Paths::delivery(id, delivery.id), Done::Tested))
}

/// Sends a delivery again.
pub(super) async fn resend(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    asked: PageRequest,
    _: Form,
) -> HandlerResult {
    deliveries::resend(&caller, webhook, id).await?;
    Ok(done(&format!("{}{}", Paths::delivery(webhook, id), log_query(&asked).way_back()), Done::Resent))
}
