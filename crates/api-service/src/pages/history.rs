//! The history of a webhook, and the notices about it.

use actix_web::http::StatusCode;
use console::{History, NoticeList, Paths, WebhookFrame};
use domain::WebhookId;
use ledger::Page;

use super::{PageRequest, framed, html};
use crate::{
    http::{ApiError, Caller, Cursors, HandlerResult, Id, cut},
    webhooks,
};

/// The maximum of entries on a page of the history, and of notices.
const PAGE_ENTRIES: u16 = 20;

/// Answers with the history of a webhook and its notices. The history of a deleted webhook is there for longer than the rest.
pub(super) async fn history(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest) -> HandlerResult {
    let webhook = match framed(&caller, id).await {
        Ok((_, webhook)) => webhook,
        Err(ApiError::NotFound) => WebhookFrame::Expired(webhooks::deleted(&caller, id).await?),
        Err(error) => return Err(error),
    };
    let lists = ["cursor", "notices"].map(|name| {
        let cursors = Cursors::of(&format!("{}history/?{name}", Paths::webhook(id)));
        (Page { after: cursors.read(asked.first(name)), limit: PAGE_ENTRIES + 1 }, cursors)
    });
    let [(page, cursors), (notices_page, notices_cursors)] = lists;
    let entries = caller.ledger.history_list(caller.admin.tenant, id, page).await?.ok_or(ApiError::NotFound)?;
    let (entries, next) = cut(entries, PAGE_ENTRIES, cursors, |entry| entry.id);
    let notices = caller.ledger.notice_list(caller.admin.tenant, id, notices_page).await?.unwrap_or_default();
    let (notices, next_notices) = cut(notices, PAGE_ENTRIES, notices_cursors, |notice| notice.notice_id);
    let view = History { webhook, entries, next, notices: NoticeList { notices, next: next_notices } };
    Ok(html(StatusCode::OK, view.render(&asked.frame)))
}
