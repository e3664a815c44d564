//! Deleted webhooks, for as long as their history is kept. It outlives the webhook's row, and alone is read.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use domain::{TenantId, WebhookId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::{history::Action, webhooks::Page},
    error::LedgerError,
    pool::Ledger,
    tables::history,
};

/// A deleted webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedWebhook {
    /// Its id.
    pub id: WebhookId,
    /// The id of its deletion's entry in the history. Later ones have larger ids.
    pub entry: Uuid,
    /// The label.
    pub name: String,
    /// The destination.
    pub url: String,
    /// The user who deleted it, as the business application named them.
    pub user: String,
    /// The time of the deletion.
    pub deleted_at: OffsetDateTime,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = history, check_for_backend(diesel::pg::Pg))]
struct Row {
    id: Uuid,
    webhook_id: Uuid,
    user_id: String,
    details: Value,
    created_at: OffsetDateTime,
}

impl Ledger {
    /// The tenant's deleted webhooks, the latest first.
    pub async fn deleted_webhooks(
        &self,
        tenant: TenantId,
        page: Page<Uuid>,
    ) -> Result<Vec<DeletedWebhook>, LedgerError> {
        let query = history::table
            // Along one index (README, a webhook's log).
            .filter(
                history::tenant_id.eq_any([tenant.as_uuid()]).and(history::action.eq_any([Action::Deleted.as_str()])),
            )
            .filter(history::id.lt(page.after.unwrap_or(Uuid::max())))
            .order((history::tenant_id.desc(), history::action.desc(), history::id.desc()))
            .limit(page.limit.into())
            .select(Row::as_select());
        let rows = self.run("deleted_webhooks", async |conn| query.load(conn).await).await?;
        Ok(rows.into_iter().map(Row::read).collect())
    }

    /// One of the tenant's deleted webhooks.
    pub async fn webhook_deleted(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
    ) -> Result<Option<DeletedWebhook>, LedgerError> {
        let query = history::table
            .filter(history::webhook_id.eq(webhook.as_uuid()).and(history::tenant_id.eq(tenant.as_uuid())))
            .filter(history::action.eq(Action::Deleted.as_str()))
            .select(Row::as_select());
        let row: Option<Row> = self.run("webhook_deleted", async |conn| query.first(conn).await.optional()).await?;
        Ok(row.map(Row::read))
    }
}

impl Row {
    fn read(self) -> DeletedWebhook {
        let text = |member: &str| self.details[member].as_str().unwrap_or_default().to_owned();
        DeletedWebhook {
            id: self.webhook_id.into(),
            entry: self.id,
            name: text("name"),
            url: text("url"),
            user: self.user_id,
            deleted_at: self.created_at,
        }
    }
}
