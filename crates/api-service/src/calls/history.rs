//! Who changed what, and what administrators were told.

use domain::{Notice, WebhookId};
use ledger::{HistoryEntry, OwnWebhook, Page};
use uuid::Uuid;

use crate::{caller::Caller, problem::ApiError};

/// What administrators did to a webhook, newest first. It is there for longer than the webhook's log.
pub(crate) async fn history(
    caller: &Caller,
    webhook: WebhookId,
    page: Page<Uuid>,
) -> Result<Vec<HistoryEntry>, ApiError> {
    caller.ledger.history_list(caller.admin.tenant, webhook, page).await?.ok_or(ApiError::NotFound)
}

/// What administrators were told of a webhook, newest first.
pub(crate) async fn notices(caller: &Caller, webhook: OwnWebhook, page: Page<Uuid>) -> Result<Vec<Notice>, ApiError> {
    Ok(caller.ledger.notice_list(webhook, page).await?)
}
