//! `/api/v1/webhooks/{id}/history/` and `…/notices/`: the changes of a webhook, and the notices about it.

use actix_web::HttpResponse;
use domain::{WebhookId, time_text::written};
use ledger::{HistoryEntry, Page};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::http::{ApiError, Caller, HandlerResult, Id, List, Query, cut};

/// What administrators did to a webhook, newest first. It is there for longer than the webhook's log.
pub(crate) async fn list(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<Uuid>, ApiError>,
) -> HandlerResult {
    let page = query.as_ref().map_or(FIRST_ENTRY, |Query(page, (), _)| Page { limit: page.limit + 1, ..*page });
    let entries = caller.ledger.history_list(caller.admin.tenant, webhook, page).await?.ok_or(ApiError::NotFound)?;
    let Query(page, (), cursors) = query?;
    let (entries, next_cursor) = cut(entries, page.limit, cursors, |entry| entry.id);
    Ok(HttpResponse::Ok().json(List { data: entries.iter().map(view).collect(), next_cursor }))
}

/// What administrators did to all webhooks of the tenant, newest first.
pub(crate) async fn list_of_tenant(caller: Caller, Query(page, (), cursors): Query<Uuid>) -> HandlerResult {
    let read = Page { limit: page.limit + 1, ..page };
    let entries = caller.ledger.history_of_tenant(caller.admin.tenant, read).await?;
    let (entries, next_cursor) = cut(entries, page.limit, cursors, |entry| entry.id);
    Ok(HttpResponse::Ok().json(List { data: entries.iter().map(view).collect(), next_cursor }))
}

/// The notices about a webhook, newest first. They are there for longer than the webhook's log.
pub(crate) async fn list_notices(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<Uuid>, ApiError>,
) -> HandlerResult {
    let page = query.as_ref().map_or(FIRST_ENTRY, |Query(page, (), _)| Page { limit: page.limit + 1, ..*page });
    let notices = caller.ledger.notice_list(caller.admin.tenant, webhook, page).await?.ok_or(ApiError::NotFound)?;
    let Query(page, (), cursors) = query?;
    let (data, next_cursor) = cut(notices, page.limit, cursors, |notice| notice.notice_id);
    Ok(HttpResponse::Ok().json(List { data, next_cursor }))
}

/// What is read when the query is faulty: an unknown webhook counts before that.
const FIRST_ENTRY: Page<Uuid> = Page { after: None, limit: 1 };

fn view(entry: &HistoryEntry) -> Value {
    json!({
        "id": entry.id,
        "webhook_id": entry.webhook,
        "created_at": written(entry.created_at),
        "user": entry.user,
        "action": entry.action.as_str(),
        "details": entry.details,
    })
}
