//! Registered webhooks (specification, section 2.1). Every query names the tenant.

mod changes;
mod ownership;

use diesel::{prelude::*, sql_types::BigInt};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{EventType, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) use self::{
    changes::END_RECOVERIES,
    ownership::{Active, Existence, lock},
};
pub use self::{changes::WebhookChange, ownership::OwnWebhook};
use crate::{
    error::LedgerError,
    pool::Ledger,
    secrets::SealedSecret,
    tables::{webhook_health, webhooks},
};

/// A webhook as its administrators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// The label.
    pub name: String,
    /// The destination, as it was written.
    pub url: String,
    /// What it is subscribed to.
    pub events: Vec<EventType>,
    /// Whether new events are delivered to it.
    pub is_active: bool,
    /// When it was registered.
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    pub updated_at: OffsetDateTime,
    /// When a delivery last succeeded.
    pub last_success_at: Option<OffsetDateTime>,
    /// Failed attempts since then.
    pub failure_count: i32,
}

/// A webhook to be registered.
pub struct NewWebhook {
    /// Its id.
    pub id: WebhookId,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The label.
    pub name: String,
    /// The destination.
    pub url: String,
    /// What it is subscribed to.
    pub events: Vec<EventType>,
    /// The sealed signing secret.
    pub secret: SealedSecret,
}

/// How many webhooks a tenant may have.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Those that are not deleted.
    pub webhooks: u32,
    /// Deleted ones, kept for their logs until retention takes them.
    pub deleted: u32,
}

/// The result of a request to register a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It is registered.
    Made(Webhook),
    /// The tenant has the most webhooks that it may have.
    TooMany,
    /// The tenant has the most deleted webhooks that are kept.
    TooManyDeleted,
}

/// A page of a list: at most `limit` entries that come after `after`.
#[derive(Clone, Copy, Debug)]
pub struct Page<Key> {
    /// The last key of the previous page.
    pub after: Option<Key>,
    /// The most entries.
    pub limit: u16,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(diesel::pg::Pg))]
struct Row {
    id: Uuid,
    name: String,
    url: String,
    events: Vec<String>,
    is_active: bool,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

/// A webhook's health. There is none before the first outcome of an attempt.
#[derive(Queryable, Selectable)]
#[diesel(table_name = webhook_health, check_for_backend(diesel::pg::Pg))]
struct HealthRow {
    last_success_at: Option<OffsetDateTime>,
    failure_count: i32,
}

impl Ledger {
    /// Registers a webhook, unless its tenant has too many already.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn webhook_create(&self, new: &NewWebhook, most: Most) -> Result<Registration, LedgerError> {
        let made = self
            .run(async |conn| {
                conn.transaction(async |conn| {
                    // One registration per tenant at a time, so that the counts stay true.
                    diesel::select(advisory_lock(tenant_key(new.tenant))).execute(conn).await?;
                    let mine = webhooks::table.filter(of(new.tenant));
                    if mine.count().get_result::<i64>(conn).await? >= i64::from(most.webhooks) {
                        return Ok(Err(Registration::TooMany));
                    }
                    let id = new.tenant.as_uuid();
                    let gone =
                        webhooks::table.filter(webhooks::tenant_id.eq(id).and(webhooks::deleted_at.is_not_null()));
                    if gone.count().get_result::<i64>(conn).await? >= i64::from(most.deleted) {
                        return Ok(Err(Registration::TooManyDeleted));
                    }
                    let insert = diesel::insert_into(webhooks::table).values(NewRow::from(new));
                    insert.returning(Row::as_returning()).get_result(conn).await.map(Ok)
                })
                .await
            })
            .await?;
        match made {
            Ok(row) => row.read(None).map(Registration::Made),
            Err(refused) => Ok(refused),
        }
    }

    /// The tenant's webhooks, oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn webhook_list(&self, tenant: TenantId, page: Page<WebhookId>) -> Result<Vec<Webhook>, LedgerError> {
        let after = page.after.map_or(Uuid::nil(), WebhookId::as_uuid);
        let rows: Vec<(Row, Option<HealthRow>)> = self
            .run(async |conn| {
                webhooks::table
                    .left_join(webhook_health::table)
                    .filter(of(tenant).and(webhooks::id.gt(after)))
                    .order(webhooks::id)
                    .limit(page.limit.into())
                    .select((Row::as_select(), Option::<HealthRow>::as_select()))
                    .load(conn)
                    .await
            })
            .await?;
        rows.into_iter().map(|(row, health)| row.read(health)).collect()
    }

    /// One of the tenant's webhooks.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn webhook_find(&self, tenant: TenantId, id: WebhookId) -> Result<Option<Webhook>, LedgerError> {
        self.run(async |conn| shown(conn, tenant, id).await).await?.map(|(row, health)| row.read(health)).transpose()
    }
}

/// One of the tenant's webhooks, with its health.
async fn shown(
    conn: &mut AsyncPgConnection,
    tenant: TenantId,
    id: WebhookId,
) -> QueryResult<Option<(Row, Option<HealthRow>)>> {
    webhooks::table
        .left_join(webhook_health::table)
        .filter(of(tenant).and(webhooks::id.eq(id.as_uuid())))
        .select((Row::as_select(), Option::<HealthRow>::as_select()))
        .first(conn)
        .await
        .optional()
}

/// The tenant's webhooks that are not deleted.
#[diesel::dsl::auto_type(no_type_alias)]
fn of(tenant: TenantId) -> _ {
    let id: Uuid = tenant.as_uuid();
    webhooks::tenant_id.eq(id).and(webhooks::deleted_at.is_null())
}

diesel::define_sql_function! {
    #[sql_name = "pg_advisory_xact_lock"]
    fn advisory_lock(key: BigInt);
}

fn tenant_key(tenant: TenantId) -> i64 {
    let (high, low) = tenant.as_uuid().as_u64_pair();
    (high ^ low).cast_signed()
}

#[derive(Insertable)]
#[diesel(table_name = webhooks)]
struct NewRow<'a> {
    id: Uuid,
    tenant_id: Uuid,
    name: &'a str,
    url: &'a str,
    events: Vec<&'a str>,
    secret_key_id: &'a str,
    secret_sealed: &'a [u8],
}

impl<'a> From<&'a NewWebhook> for NewRow<'a> {
    fn from(new: &'a NewWebhook) -> Self {
        Self {
            id: new.id.as_uuid(),
            tenant_id: new.tenant.as_uuid(),
            name: &new.name,
            url: &new.url,
            events: new.events.iter().map(|event| event.as_str()).collect(),
            secret_key_id: &new.secret.key_id,
            secret_sealed: &new.secret.sealed,
        }
    }
}

impl Row {
    fn read(self, health: Option<HealthRow>) -> Result<Webhook, LedgerError> {
        let unreadable = |_| LedgerError::Unreadable { column: "webhooks.events" };
        let events = self.events.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(unreadable)?;
        Ok(Webhook {
            id: self.id.into(),
            name: self.name,
            url: self.url,
            events,
            is_active: self.is_active,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_success_at: health.as_ref().and_then(|health| health.last_success_at),
            failure_count: health.map_or(0, |health| health.failure_count),
        })
    }
}
