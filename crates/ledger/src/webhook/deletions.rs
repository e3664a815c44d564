//! Deleted webhooks, for as long as their history is kept. It outlives the webhook's row, and alone is read.

use diesel::{pg::Pg, prelude::*};
use diesel_async::RunQueryDsl;
use domain::{TenantId, WebhookId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger, error::LedgerError, history::Action, lists::Page, tables::history,
    webhook::settings::WebhookSettings,
};

/// A deleted webhook.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = history, check_for_backend(Pg))]
pub struct DeletedWebhook {
    /// Its id.
    #[diesel(column_name = webhook_id)]
    pub id: WebhookId,
    /// The id of its deletion's entry in the history. Later ones have larger ids.
    #[diesel(column_name = id)]
    pub entry: Uuid,
    /// Its name and its URL.
    #[diesel(column_name = details, deserialize_as = Value)]
    pub settings: WebhookSettings,
    /// The user who deleted it, as the business application named them.
    #[diesel(column_name = user_id)]
    pub user: String,
    /// The time of the deletion.
    #[diesel(column_name = created_at)]
    pub deleted_at: OffsetDateTime,
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
            .select(DeletedWebhook::as_select());
        self.run("deleted_webhooks", async |conn| query.load(conn).await).await
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
            .select(DeletedWebhook::as_select());
        self.run("webhook_deleted", async |conn| query.first(conn).await.optional()).await
    }
}
