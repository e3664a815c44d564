//! The acts of administrators on a webhook: kept with its row, and for 90 days after its deletion.

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, PgValue},
    prelude::*,
    sql_types::Text,
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{TenantId, WebhookId, parse_name};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    lists::{Page, load_page},
    statement::{Column, rows, sql},
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

/// An act of an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr, FromSqlRow)]
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
    /// Stopped a recovery.
    Stopped,
    /// Cancelled what waited.
    Cancelled,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Changed,
        Self::Deleted,
        Self::Tested,
        Self::Resent,
        Self::Recovered,
        Self::Stopped,
        Self::Cancelled,
    ];

    /// The name in the ledger and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Column for Action {
    type Type = Text;
}

impl FromSql<Text, Pg> for Action {
    fn from_sql(name: PgValue<'_>) -> deserialize::Result<Self> {
        parse_name(&name)
    }
}

/// An entry of a webhook's history.
#[derive(Clone, Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = history, check_for_backend(diesel::pg::Pg))]
pub struct HistoryEntry {
    /// Its id. Later entries have larger ones.
    pub id: Uuid,
    /// The webhook.
    #[diesel(column_name = webhook_id)]
    pub webhook: WebhookId,
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

/// The next $4 entries of tenant $2 before $3 of the actions $1: those of each along the index that begins with both
/// (README, a webhook's log).
const TENANT_HISTORY: &str = "SELECT id, webhook_id AS webhook, user_id AS \"user\", h.action, details, created_at \
     FROM unnest($1) AS known(action) CROSS JOIN LATERAL ( \
       SELECT * FROM history WHERE tenant_id = ANY (ARRAY[$2]) AND action = known.action AND id < $3 \
       ORDER BY tenant_id DESC, action DESC, id DESC LIMIT $4 \
     ) AS h ORDER BY h.id DESC LIMIT $4";

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

    /// The history of all webhooks that the tenant has or had, newest first.
    pub async fn history_of_tenant(
        &self,
        tenant: TenantId,
        page: Page<Uuid>,
    ) -> Result<Vec<HistoryEntry>, LedgerError> {
        let find = sql(TENANT_HISTORY)
            .bind(Action::ALL.map(Action::as_str).to_vec())
            .bind(tenant.as_uuid())
            .bind(page.after.unwrap_or(Uuid::max()))
            .bind(i64::from(page.limit));
        self.run("history_of_tenant", async |conn| find.load_known(conn).await).await
    }
}

rows! { HistoryEntry { id, webhook, user, action, details, created_at } }

/// Returns true if the tenant has this webhook, deleted or not, or its history.
pub(crate) async fn is_known(conn: &mut AsyncPgConnection, tenant: Uuid, webhook: Uuid) -> QueryResult<bool> {
    let of_webhook = webhooks::table.filter(webhooks::id.eq(webhook).and(webhooks::tenant_id.eq(tenant)));
    let of_history = history::table.filter(history::webhook_id.eq(webhook).and(history::tenant_id.eq(tenant)));
    Ok(diesel::select(diesel::dsl::exists(of_webhook)).get_result(conn).await?
        || diesel::select(diesel::dsl::exists(of_history)).get_result(conn).await?)
}

/// Adds an entry, in the transaction of the change.
pub(crate) async fn add_history(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    webhook: WebhookId,
    action: Action,
    details: Value,
) -> QueryResult<()> {
    let row = (
        history::tenant_id.eq(actor.tenant.as_uuid()),
        history::webhook_id.eq(webhook.as_uuid()),
        history::user_id.eq(actor.user.as_str()),
        history::action.eq(action.as_str()),
        history::details.eq(details),
    );
    diesel::insert_into(history::table).values(row).execute(conn).await.map(|_| ())
}
