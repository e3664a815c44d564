//! What administrators did to a webhook: kept with it, and for 90 days after its deletion.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{TenantId, WebhookId};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::webhooks::Page,
    error::LedgerError,
    pool::Ledger,
    tables::{history, webhooks},
};

/// The administrator who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The tenant.
    pub tenant: TenantId,
    /// The user, as the business application names them.
    pub user: String,
}

/// What an administrator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Registered the webhook.
    Created,
    /// Changed its name, URL or events, or paused or activated it.
    Changed,
    /// Deleted it.
    Deleted,
    /// Asked for a test delivery.
    Tested,
    /// Had a delivery sent again.
    Resent,
    /// Had many deliveries sent again.
    Recovered,
    /// Cancelled what waited.
    Cancelled,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 7] =
        [Self::Created, Self::Changed, Self::Deleted, Self::Tested, Self::Resent, Self::Recovered, Self::Cancelled];

    /// The name in the ledger and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An entry of a webhook's history.
#[derive(Clone, Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = history, check_for_backend(diesel::pg::Pg))]
pub struct HistoryEntry {
    /// Its id. Later entries have larger ones.
    pub id: Uuid,
    /// The user, as the business application named them.
    #[diesel(column_name = user_id)]
    pub user: String,
    /// What they did: the name of an [`Action`].
    pub action: String,
    /// What changed, or what was asked for.
    pub details: Value,
    /// When.
    pub created_at: OffsetDateTime,
}

impl Ledger {
    /// A webhook's history, newest first. `None` when the tenant has no such webhook, and no history of it either.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn history_list(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        page: Page<Uuid>,
    ) -> Result<Option<Vec<HistoryEntry>>, LedgerError> {
        let (tenant, webhook) = (tenant.as_uuid(), webhook.as_uuid());
        let before = page.after.unwrap_or(Uuid::max());
        let entries = history::table
            .filter(history::webhook_id.eq(webhook).and(history::tenant_id.eq(tenant)).and(history::id.lt(before)))
            .order((history::webhook_id.desc(), history::id.desc()))
            .limit(page.limit.into())
            .select(HistoryEntry::as_select());
        let of_webhook = webhooks::table.filter(webhooks::id.eq(webhook).and(webhooks::tenant_id.eq(tenant)));
        let of_history = history::table.filter(history::webhook_id.eq(webhook).and(history::tenant_id.eq(tenant)));
        self.run(async |conn| {
            let entries: Vec<HistoryEntry> = entries.load(conn).await?;
            let is_known = !entries.is_empty()
                || diesel::select(diesel::dsl::exists(of_webhook)).get_result(conn).await?
                || diesel::select(diesel::dsl::exists(of_history)).get_result(conn).await?;
            Ok(is_known.then_some(entries))
        })
        .await
    }
}

/// Adds an entry, in the transaction of what it tells of. Returns its id.
pub(crate) async fn add_history(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    webhook: WebhookId,
    action: Action,
    details: Value,
) -> QueryResult<Uuid> {
    let row = (
        history::tenant_id.eq(actor.tenant.as_uuid()),
        history::webhook_id.eq(webhook.as_uuid()),
        history::user_id.eq(actor.user.as_str()),
        history::action.eq(action.as_str()),
        history::details.eq(details),
    );
    diesel::insert_into(history::table).values(row).returning(history::id).get_result(conn).await
}

/// Takes an entry back, with what it told of.
pub(crate) async fn remove_history(conn: &mut AsyncPgConnection, id: Uuid) -> QueryResult<()> {
    diesel::delete(history::table.find(id)).execute(conn).await.map(|_| ())
}
