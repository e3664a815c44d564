//! Notices: what administrators are told. The transaction of what a notice is about adds it; the outbox relay publishes
//! it, and marks it once the broker has confirmed it. Triggers of `webhook_health` add those about a webhook's health.

use diesel::{
    QueryableByName,
    prelude::*,
    sql_types::{Int4, Json, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{Notice, NoticeType, WebhookId, notice_by};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{admin::history::Actor, error::LedgerError, pool::Ledger, tables::notices};

/// A notice with its webhook's name.
#[derive(QueryableByName)]
pub(crate) struct Row {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    webhook_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    tenant_id: Uuid,
    #[diesel(sql_type = Text)]
    notice_type: String,
    #[diesel(sql_type = Json)]
    details: Value,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Text)]
    webhook_name: String,
}

/// Leases the notices that are not published, oldest lease first, for as long as jobs of the outbox.
const LEASE: &str = "WITH leased AS ( \
       UPDATE notices AS n SET leased_until = now() + interval '30 seconds' FROM ( \
         SELECT id FROM notices WHERE leased_until <= now() ORDER BY leased_until, id LIMIT $1 FOR UPDATE SKIP LOCKED \
       ) AS next WHERE n.id = next.id RETURNING n.* \
     ) SELECT l.id, l.webhook_id, l.tenant_id, l.type AS notice_type, l.details, l.created_at, \
              coalesce(w.name, '') AS webhook_name \
     FROM leased AS l LEFT JOIN webhooks AS w ON w.id = l.webhook_id ORDER BY l.id";

impl Ledger {
    /// Leases up to `most` notices that are not known to be published.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn notices_lease(&self, most: u16) -> Result<Vec<Notice>, LedgerError> {
        let query = diesel::sql_query(LEASE).bind::<Int4, _>(i32::from(most));
        self.run(async |conn| query.load::<Row>(conn).await).await?.into_iter().map(Row::read).collect()
    }

    /// Notes that the broker has confirmed these notices.
    ///
    /// # Errors
    /// When the database does not answer. They are then published again.
    pub async fn notices_published(&self, ids: &[Uuid]) -> Result<(), LedgerError> {
        let these = diesel::update(notices::table.filter(notices::id.eq_any(ids)));
        let mark = these.set(notices::leased_until.eq(None::<OffsetDateTime>));
        self.run(async |conn| mark.execute(conn).await.map(|_| ())).await
    }
}

/// Adds a notice of what a user did, and which members of the webhook that changed.
pub(crate) async fn add_notice(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    webhook: WebhookId,
    notice_type: NoticeType,
    changed: &[&str],
) -> QueryResult<()> {
    let row = (
        notices::webhook_id.eq(webhook.as_uuid()),
        notices::tenant_id.eq(actor.tenant.as_uuid()),
        notices::notice_type.eq(notice_type.as_str()),
        notices::details.eq(notice_by(&actor.user, changed)),
    );
    diesel::insert_into(notices::table).values(row).execute(conn).await.map(|_| ())
}

impl Row {
    pub(crate) fn read(self) -> Result<Notice, LedgerError> {
        let notice_type = self.notice_type.parse();
        Ok(Notice::new(
            self.id,
            notice_type.map_err(|_| LedgerError::Unreadable { column: "notices.type" })?,
            self.created_at,
            self.tenant_id.into(),
            self.webhook_id.into(),
            self.webhook_name,
            self.details,
        ))
    }
}
