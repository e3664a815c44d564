//! The search for an event, a delivery or a webhook by its id.

use actix_web::http::StatusCode;
use console::{Find, Paths, SearchResult};
use uuid::Uuid;

use super::{PageRequest, html, see_other};
use crate::{
    events::{self, explanation},
    http::{ApiError, Caller, HandlerResult},
};

/// Answers with the fate of an event, or leads to the page of a delivery or a webhook.
pub(super) async fn find(caller: Caller, asked: PageRequest) -> HandlerResult {
    let id = asked.first("id");
    let found = match Uuid::try_parse(id) {
        _ if id.is_empty() => SearchResult::Nothing,
        Err(_) => SearchResult::NoId,
        Ok(uuid) => match look_up(&caller, uuid).await? {
            Ok(path) => return Ok(see_other(&path)),
            Err(found) => found,
        },
    };
    Ok(html(StatusCode::OK, Find { id, found, explain: explanation }.render(&asked.frame)))
}

/// Finds the path of the page that an id leads to, or the events of this id.
async fn look_up(caller: &Caller, id: Uuid) -> Result<Result<String, SearchResult>, ApiError> {
    if let Ok(delivery) = id.to_string().parse()
        && let Some(webhook) = caller.ledger.delivery_webhook(caller.admin.tenant, delivery).await?
    {
        return Ok(Ok(Paths::delivery(webhook.id(), delivery)));
    }
    if caller.ledger.webhook_known(caller.admin.tenant, id.into()).await?.is_some() {
        return Ok(Ok(Paths::webhook(id.into())));
    }
    if let Some(webhook) = caller.ledger.webhook_deleted(caller.admin.tenant, id.into()).await? {
        return Ok(Ok(Paths::of_webhook(webhook.id, "history")));
    }
    match events::find(caller, id.into()).await {
        Ok(events) => Ok(Err(SearchResult::Events(id.into(), events))),
        Err(unknown @ ApiError::UnknownEvent) => Ok(Err(SearchResult::Unknown(unknown.to_string()))),
        Err(error) => Err(error),
    }
}
