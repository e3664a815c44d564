//! The acts of administrators on a webhook: kept with its row, and for 90 days after its deletion.

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, PgValue},
    prelude::*,
    sql_types::Text,
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{TenantId, WebhookId};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr};

use crate::{names::named, tables::history};

/// The administrator who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The tenant.
    pub tenant: TenantId,
    /// The user, as the business application names them.
    pub user: String,
}

/// What an administrator did.
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
    /// Cancelled what waited.
    Cancelled,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 7] =
        [Self::Created, Self::Changed, Self::Deleted, Self::Tested, Self::Resent, Self::Recovered, Self::Cancelled];

    /// The name in the ledger and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromSql<Text, Pg> for Action {
    fn from_sql(name: PgValue<'_>) -> deserialize::Result<Self> {
        named(&name)
    }
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
