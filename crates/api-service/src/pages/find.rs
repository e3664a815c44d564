//! The search for an event, a delivery or a webhook by its id, and for deliveries by a text in their bodies.

use actix_web::http::StatusCode;
use console::{Find, FoundDeliveries, Paths, SearchResult};
use domain::DeliveryId;
use ledger::{DeliveryFilter, FoundEvents, Page};
use uuid::Uuid;

use super::{PageRequest, html, see_other};
use crate::{
    deliveries::{self, filter::searchable},
    events::{self, explanation},
    http::{ApiError, Caller, Cursors, HandlerResult},
};

/// The maximum of deliveries on a page.
const PAGE_DELIVERIES: u16 = 40;

/// What an id leads to.
enum Destination {
    Page(String),
    Events(FoundEvents),
    /// Nothing. The reasons that this can have.
    Nothing(String),
}

/// Answers with the fate of an event or with deliveries, or leads to the page of a delivery or a webhook.
pub(super) async fn find(caller: Caller, asked: PageRequest) -> HandlerResult {
    let id = asked.first("id").trim();
    let answer = |found| Ok(html(StatusCode::OK, Find { id, found, explain: explanation }.render(&asked.frame)));
    let mut unknown = None;
    if let Ok(uuid) = Uuid::try_parse(id) {
        match look_up(&caller, uuid).await? {
            Destination::Page(path) => return Ok(see_other(&path)),
            Destination::Events(events) => return answer(SearchResult::Events(uuid.into(), events)),
            Destination::Nothing(why) => unknown = Some(why),
        }
    }
    match searchable("id", id) {
        _ if id.is_empty() => answer(SearchResult::Nothing),
        Err(wrong) => answer(SearchResult::Fault(format!("the text {}", wrong.message))),
        Ok(text) => answer(SearchResult::Deliveries(search(&caller, text, asked.first("cursor"), unknown).await?)),
    }
}

/// Finds what an id leads to.
async fn look_up(caller: &Caller, id: Uuid) -> Result<Destination, ApiError> {
    if let Ok(delivery) = id.to_string().parse()
        && let Some(webhook) = caller.ledger.delivery_webhook(caller.admin.tenant, delivery).await?
    {
        return Ok(Destination::Page(Paths::delivery(webhook.id(), delivery)));
    }
    if caller.ledger.webhook_known(caller.admin.tenant, id.into()).await?.is_some() {
        return Ok(Destination::Page(Paths::webhook(id.into())));
    }
    if let Some(webhook) = caller.ledger.webhook_deleted(caller.admin.tenant, id.into()).await? {
        return Ok(Destination::Page(Paths::of_webhook(webhook.id, "history")));
    }
    match events::find(caller, id.into()).await {
        Ok(events) => Ok(Destination::Events(events)),
        Err(unknown @ ApiError::UnknownEvent) => Ok(Destination::Nothing(unknown.to_string())),
        Err(error) => Err(error),
    }
}

/// Searches the bodies of all webhooks of the tenant.
async fn search(
    caller: &Caller,
    text: String,
    cursor: &str,
    unknown: Option<String>,
) -> Result<FoundDeliveries, ApiError> {
    // A cursor is of one text.
    let cursors = Cursors::of(&Paths::find(&text));
    let page = Page { after: cursors.read(cursor).map(DeliveryId::from), limit: PAGE_DELIVERIES };
    let filter = DeliveryFilter { contains: Some(text), ..DeliveryFilter::default() };
    let found = deliveries::search(caller, None, &filter, page).await?;
    let names = caller.ledger.webhook_names(caller.admin.tenant, found.deliveries.iter().map(|listed| listed.webhook));
    let next = found.next.map(|last| cursors.after(last.as_uuid())).zip(found.searched_until());
    let is_later = page.after.is_some();
    Ok(FoundDeliveries { names: names.await?, deliveries: found.deliveries, is_later, unknown, next })
}
