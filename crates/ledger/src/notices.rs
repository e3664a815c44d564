//! Notices: what administrators are notified of. The transaction of what a notice is about adds it; the outbox relay publishes
//! it, and marks it once the broker has confirmed it. Triggers of `webhook_health` add those about a webhook's health.

pub(crate) mod expiring;
pub(crate) mod failing;

use diesel::{
    QueryableByName,
    prelude::*,
    sql_types::{Json, Text},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{KeyId, Notice, NoticeType, TenantId, WebhookId, notice_by, notice_of_key};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    history::{Actor, is_known},
    lists::Page,
    statement::sql,
    tables::{notices, webhooks},
};

#[derive(Queryable, QueryableByName, Selectable)]
#[diesel(table_name = notices, check_for_backend(diesel::pg::Pg))]
struct NoticeRow {
    id: Uuid,
    webhook_id: Option<Uuid>,
    tenant_id: Uuid,
    webhook_name: Option<String>,
    notice_type: String,
    details: Value,
    created_at: OffsetDateTime,
}

/// Leases the notices that are not published, oldest lease first, for as long as jobs of the outbox. An id begins with
/// its millisecond; within one, the transaction that began first comes first. Leaves those of types that only a newer
/// version knows, which publishes them.
const LEASE_NOTICES: &str = "WITH leased AS ( \
       UPDATE notices AS n SET leased_until = now() + interval '30 seconds' FROM ( \
         SELECT id FROM notices WHERE leased_until <= now() AND notice_type = ANY ($2) \
         ORDER BY leased_until, id LIMIT $1 FOR UPDATE SKIP LOCKED \
       ) AS next WHERE n.id = next.id RETURNING n.* \
     ) SELECT * FROM leased ORDER BY left(id::text, 13), created_at, id";

impl Ledger {
    /// Leases up to `most` notices that are not known to be published.
    pub async fn notices_lease(&self, most: u16) -> Result<Vec<Notice>, LedgerError> {
        let known = NoticeType::ALL.map(NoticeType::as_str);
        let query = sql(LEASE_NOTICES).bind(i32::from(most)).bind(&known[..]);
        let rows: Vec<NoticeRow> = self.run("notices_lease", async |conn| query.load(conn).await).await?;
        Ok(rows.into_iter().filter_map(NoticeRow::read).collect())
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
            .select(NoticeRow::as_select());
        let rows = self.run("notice_list", async |conn| {
            let rows: Vec<NoticeRow> = query.load(conn).await?;
            let is_known = !rows.is_empty() || is_known(conn, tenant.as_uuid(), webhook.as_uuid()).await?;
            Ok(is_known.then_some(rows))
        });
        Ok(rows.await?.map(|rows| rows.into_iter().filter_map(NoticeRow::read).collect()))
    }

    /// Notes that the broker has confirmed these notices.
    ///
    /// # Errors
    /// When the database does not answer. They are then published again.
    pub async fn notices_published(&self, ids: &[Uuid]) -> Result<(), LedgerError> {
        let these = diesel::update(notices::table.filter(notices::id.eq_any(ids)));
        let mark = these.set(notices::leased_until.eq(None::<OffsetDateTime>));
        self.run("notices_published", async |conn| mark.execute(conn).await.map(|_| ())).await
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
    let row = webhooks::table.find(webhook.as_uuid()).select((
        webhooks::id.nullable(),
        webhooks::tenant_id,
        webhooks::name.nullable(),
        notice_type.as_str().into_sql::<Text>(),
        notice_by(&actor.user, changed).into_sql::<Json>(),
    ));
    let columns =
        (notices::webhook_id, notices::tenant_id, notices::webhook_name, notices::notice_type, notices::details);
    row.insert_into(notices::table).into_columns(columns).execute(conn).await.map(|_| ())
}

/// Adds a notice of what a user did to a key.
pub(crate) async fn add_key_notice(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    notice_type: NoticeType,
    (key, name, expires_at): (KeyId, &str, Option<OffsetDateTime>),
) -> QueryResult<()> {
    let row = (
        notices::tenant_id.eq(actor.tenant.as_uuid()),
        notices::notice_type.eq(notice_type.as_str()),
        notices::details.eq(notice_of_key(&actor.user, key, name, expires_at)),
    );
    diesel::insert_into(notices::table).values(row).execute(conn).await.map(|_| ())
}

impl NoticeRow {
    /// `None` for a notice of an unknown type.
    fn read(self) -> Option<Notice> {
        let Ok(notice_type) = self.notice_type.parse() else {
            tracing::warn!(notice = %self.id, "a notice has the unknown type {}", self.notice_type);
            return None;
        };
        let (tenant, webhook) = (self.tenant_id.into(), self.webhook_id.map(WebhookId::from));
        Some(Notice::new(self.id, notice_type, self.created_at, tenant, webhook, self.webhook_name, self.details))
    }
}
