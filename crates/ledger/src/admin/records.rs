//! What is told of a webhook, as administrators read it: its history and its notices.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{Notice, NoticeType, TenantId, WebhookId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::{history::Action, notices::Row, webhooks::Page},
    error::LedgerError,
    names::load_page,
    pool::Ledger,
    tables::{history, notices, webhooks},
};

/// An entry of a webhook's history.
#[derive(Clone, Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = history, check_for_backend(diesel::pg::Pg))]
pub struct HistoryEntry {
    /// Its id. Later entries have larger ones.
    pub id: Uuid,
    /// The user, as the business application named them.
    #[diesel(column_name = user_id)]
    pub user: String,
    /// The action.
    pub action: Action,
    /// What changed, or what was asked for.
    pub details: Value,
    /// When.
    pub created_at: OffsetDateTime,
}

impl Ledger {
    /// A webhook's history, newest first. `None` when the tenant has no such webhook, and no history of it either.
    pub async fn history_list(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        page: Page<Uuid>,
    ) -> Result<Option<Vec<HistoryEntry>>, LedgerError> {
        let (tenant, webhook) = (tenant.as_uuid(), webhook.as_uuid());
        let before = page.after.unwrap_or(Uuid::max());
        self.run("history_list", async |conn| {
            let query = |limit| {
                history::table
                    // Along one index (README, a webhook's log).
                    .filter(history::webhook_id.eq_any([webhook]).and(history::tenant_id.eq(tenant)))
                    .filter(history::id.lt(before))
                    .order((history::webhook_id.desc(), history::id.desc()))
                    .limit(limit)
                    .select(HistoryEntry::as_select())
            };
            let entries = load_page(page.limit, query, conn).await?;
            let is_known = !entries.is_empty() || is_known(conn, tenant, webhook).await?;
            Ok(is_known.then_some(entries))
        })
        .await
    }

    /// A webhook's notices of the types that this version knows, newest first. `None` when the tenant has no such webhook,
    /// and no history of it either.
    pub async fn notice_list(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        page: Page<Uuid>,
    ) -> Result<Option<Vec<Notice>>, LedgerError> {
        let query = notices::table
            // Along one index (README, a webhook's log).
            .filter(
                notices::webhook_id
                    .eq_any([webhook.as_uuid()])
                    .and(notices::tenant_id.eq(tenant.as_uuid()))
                    .and(notices::id.lt(page.after.unwrap_or(Uuid::max()))),
            )
            .filter(notices::notice_type.eq_any(NoticeType::ALL.map(NoticeType::as_str)))
            .order((notices::webhook_id.desc(), notices::id.desc()))
            .limit(page.limit.into())
            .select(Row::as_select());
        let rows = self.run("notice_list", async |conn| {
            let rows: Vec<Row> = query.load(conn).await?;
            let is_known = !rows.is_empty() || is_known(conn, tenant.as_uuid(), webhook.as_uuid()).await?;
            Ok(is_known.then_some(rows))
        });
        Ok(rows.await?.map(|rows| rows.into_iter().filter_map(Row::read).collect()))
    }
}

/// Returns true if the tenant has this webhook, deleted or not, or its history.
async fn is_known(conn: &mut AsyncPgConnection, tenant: Uuid, webhook: Uuid) -> QueryResult<bool> {
    let of_webhook = webhooks::table.filter(webhooks::id.eq(webhook).and(webhooks::tenant_id.eq(tenant)));
    let of_history = history::table.filter(history::webhook_id.eq(webhook).and(history::tenant_id.eq(tenant)));
    Ok(diesel::select(diesel::dsl::exists(of_webhook)).get_result(conn).await?
        || diesel::select(diesel::dsl::exists(of_history)).get_result(conn).await?)
}
