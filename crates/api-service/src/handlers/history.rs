//! `/api/v1/webhooks/{id}/history/` and `…/notices/`: who changed what, and what administrators were told.

use actix_web::HttpResponse;
use domain::{WebhookId, time_text};
use ledger::{HistoryEntry, Page};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    caller::Caller,
    calls::{history, webhooks},
    problem::{Answer, ApiError},
    request::{Id, List, Query, cut},
};

/// An entry of a webhook's history.
#[derive(Serialize)]
struct HistoryView {
    id: Uuid,
    #[serde(with = "time_text")]
    created_at: OffsetDateTime,
    user: String,
    action: &'static str,
    details: Value,
}

/// What administrators did to a webhook, newest first. It is there for longer than the webhook's log.
pub(crate) async fn list(caller: Caller, Id(webhook): Id<WebhookId>, query: Result<Query<Uuid>, ApiError>) -> Answer {
    let page = query.as_ref().map_or(FIRST, |Query(page, (), _)| Page { limit: page.limit + 1, ..*page });
    let entries = history::history(&caller, webhook, page).await?;
    let Query(page, (), cursors) = query?;
    let (entries, next_cursor) = cut(entries, page.limit, cursors, |entry| entry.id);
    Ok(HttpResponse::Ok().json(List { data: entries.into_iter().map(HistoryView::of).collect(), next_cursor }))
}

/// What administrators were told of a webhook, newest first.
pub(crate) async fn notices(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Query<Uuid>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Query(page, (), cursors) = query?;
    let notices = history::notices(&caller, webhook, Page { limit: page.limit + 1, ..page }).await?;
    let (data, next_cursor) = cut(notices, page.limit, cursors, |notice| notice.notice_id);
    Ok(HttpResponse::Ok().json(List { data, next_cursor }))
}

/// What is read when the query is faulty: an unknown webhook counts before that.
const FIRST: Page<Uuid> = Page { after: None, limit: 1 };

impl HistoryView {
    fn of(entry: HistoryEntry) -> Self {
        let HistoryEntry { id, user, action, details, created_at } = entry;
        Self { id, created_at, user, action: action.as_str(), details }
    }
}
