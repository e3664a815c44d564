//! Which tenant owns a webhook.

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    tables::webhooks,
    webhook::{cancellation::cancelling, of},
};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{TenantId, WebhookId, WebhookState};

/// Proof that the tenant has, or had, this webhook. Without it, nobody is shown its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnWebhook {
    id: WebhookId,
    pub(crate) existence: Existence,
}

/// Whether a webhook still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existence {
    /// It does.
    Registered,
    /// It is deleted, and some of its deliveries may not be marked as cancelled yet.
    Cancelling,
    /// It is deleted, and all of its deliveries have ended.
    Deleted,
}

impl OwnWebhook {
    /// Its id.
    pub const fn id(self) -> WebhookId {
        self.id
    }
}

impl Ledger {
    /// The webhook, if the tenant has or had it. The history of a deleted one stays readable.
    pub async fn webhook_known(&self, tenant: TenantId, id: WebhookId) -> Result<Option<OwnWebhook>, LedgerError> {
        let mine = webhooks::table
            .filter(webhooks::tenant_id.eq(tenant.as_uuid()).and(webhooks::id.eq(id.as_uuid())))
            .select((webhooks::deleted_at.is_not_null(), diesel::dsl::exists(cancelling(id.as_uuid()))));
        let row: Option<(bool, bool)> =
            self.run("webhook_known", async |conn| mine.first(conn).await.optional()).await?;
        let existence = |(is_deleted, is_cancelling)| match (is_deleted, is_cancelling) {
            (false, _) => Existence::Registered,
            (true, true) => Existence::Cancelling,
            (true, false) => Existence::Deleted,
        };
        Ok(row.map(|row| OwnWebhook { id, existence: existence(row) }))
    }
}

/// Locks one of the tenant's webhooks that is not deleted. Returns whether it takes deliveries. Neither changes until
/// the transaction ends.
pub(crate) async fn lock(
    conn: &mut AsyncPgConnection,
    tenant: TenantId,
    id: WebhookId,
) -> QueryResult<Option<WebhookState>> {
    let one = webhooks::table.filter(of(tenant).and(webhooks::id.eq(id.as_uuid()))).select(webhooks::is_active);
    let is_active: Option<bool> = one.for_share().first(conn).await.optional()?;
    Ok(is_active.map(|is_active| if is_active { WebhookState::Active } else { WebhookState::Paused }))
}
