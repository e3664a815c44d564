//! Which tenant owns a webhook.

use std::collections::HashMap;

use diesel::{dsl::exists, prelude::*};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{TenantId, WebhookId, WebhookState};
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    tables::{cancellations, webhooks},
    webhook::of,
};

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

/// Webhooks that the tenant has or had: whether each is deleted, and whether its deliveries are being cancelled.
#[diesel::dsl::auto_type(no_type_alias)]
fn known_to(tenant: Uuid) -> _ {
    let cancelling = cancellations::table.filter(cancellations::webhook_id.eq(webhooks::id));
    webhooks::table.filter(webhooks::tenant_id.eq(tenant)).select((
        webhooks::id,
        webhooks::deleted_at.is_not_null(),
        exists(cancelling),
    ))
}

impl OwnWebhook {
    /// Reads a row of [`known_to`]. Nobody else makes a proof.
    fn of_row((id, is_deleted, is_cancelling): (Uuid, bool, bool)) -> Self {
        let existence = match (is_deleted, is_cancelling) {
            (false, _) => Existence::Registered,
            (true, true) => Existence::Cancelling,
            (true, false) => Existence::Deleted,
        };
        Self { id: id.into(), existence }
    }
}

impl Ledger {
    /// The webhook, if the tenant has or had it. The history of a deleted one stays readable.
    pub async fn webhook_known(&self, tenant: TenantId, id: WebhookId) -> Result<Option<OwnWebhook>, LedgerError> {
        let mine = known_to(tenant.as_uuid()).filter(webhooks::id.eq(id.as_uuid()));
        let row: Option<(Uuid, bool, bool)> =
            self.run("webhook_known", async |conn| mine.first(conn).await.optional()).await?;
        Ok(row.map(OwnWebhook::of_row))
    }

    /// All webhooks that the tenant has or had.
    pub async fn own_webhooks(&self, tenant: TenantId) -> Result<Vec<OwnWebhook>, LedgerError> {
        let all = known_to(tenant.as_uuid()).order((webhooks::tenant_id, webhooks::id));
        let rows: Vec<(Uuid, bool, bool)> = self.run("own_webhooks", async |conn| all.load(conn).await).await?;
        Ok(rows.into_iter().map(OwnWebhook::of_row).collect())
    }

    /// The names of webhooks that the tenant has or had.
    pub async fn webhook_names(
        &self,
        tenant: TenantId,
        ids: impl Iterator<Item = WebhookId> + Send,
    ) -> Result<HashMap<WebhookId, String>, LedgerError> {
        let ids: Vec<Uuid> = ids.map(WebhookId::as_uuid).collect();
        let named = webhooks::table.filter(webhooks::tenant_id.eq(tenant.as_uuid()).and(webhooks::id.eq_any(ids)));
        let query = named.select((webhooks::id, webhooks::name));
        let rows: Vec<(Uuid, String)> = self.run("webhook_names", async |conn| query.load(conn).await).await?;
        Ok(rows.into_iter().map(|(id, name)| (id.into(), name)).collect())
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
