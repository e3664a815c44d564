//! Registered webhooks (specification, section 2.1). Every query names the tenant.

mod backlog;
pub(crate) mod cancellation;
mod changes;
pub(crate) mod deletions;
pub(crate) mod headers;
mod ownership;
pub(crate) mod settings;

use std::time::Duration;

use diesel::{pg::Pg, prelude::*, sql_types::BigInt};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{NoticeType, TenantId, WebhookId};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) use self::ownership::{Existence, lock};
pub use self::{backlog::Backlog, ownership::OwnWebhook};
use crate::{
    connect::pool::{CALL_TIMEOUT, Ledger},
    error::LedgerError,
    history::{Action, Actor, add_history},
    lists::{Page, load_page},
    notices::add_notice,
    refusal::Refusal,
    secrets::SealedSecret,
    statement::sql,
    tables::{webhook_health, webhooks},
    webhook::{headers::WebhookHeaders, settings::WebhookSettings},
};

/// The time after a webhook's `deleted_at` in which an ingest may still store a delivery to the webhook. `deleted_at` is the
/// begin of the deleting transaction, which commits within [`CALL_TIMEOUT`] (20 s). Until then an ingest reads the webhook
/// as it was, and its own call ends within that time and a tenth, when the server ends the statement (22 s). The last 3 s
/// are for the commits.
pub const SETTLE_TIME: Duration = CALL_TIMEOUT.saturating_mul(2).saturating_add(Duration::from_secs(5));

/// A webhook as its administrators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// The settings.
    pub settings: WebhookSettings,
    /// The names of its own headers.
    pub header_names: Vec<String>,
    /// When it was registered.
    pub created_at: OffsetDateTime,
    /// When it was last changed. Each change has a later time.
    pub updated_at: OffsetDateTime,
    /// When it was deleted.
    pub deleted_at: Option<OffsetDateTime>,
    /// The outcomes of its attempts.
    pub health: WebhookHealth,
    /// The numbers of waiting deliveries, and of those that did not arrive.
    pub backlog: Backlog,
}

/// The outcomes of a webhook's attempts. The default is for a webhook without attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = webhook_health, check_for_backend(Pg))]
pub struct WebhookHealth {
    /// When a delivery last succeeded.
    pub last_success_at: Option<OffsetDateTime>,
    /// Failed attempts since then.
    pub failure_count: i32,
    /// When the first of them ended.
    pub failing_since: Option<OffsetDateTime>,
    /// When the last failed attempt ended.
    pub last_failure_at: Option<OffsetDateTime>,
    /// Its failure message.
    pub last_failure: Option<String>,
}

/// A webhook to be registered.
#[derive(Insertable)]
#[diesel(table_name = webhooks)]
pub struct NewWebhook {
    /// Its id.
    pub id: WebhookId,
    /// The settings.
    #[diesel(embed)]
    pub settings: WebhookSettings,
    /// The sealed signing secret.
    #[diesel(embed)]
    pub secret: SealedSecret,
    /// Its own headers.
    #[diesel(embed)]
    pub headers: WebhookHeaders,
}

/// Which of a tenant's webhooks are listed. The default: all that are not deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookFilter {
    /// The webhook with this external id.
    pub external_id: Option<String>,
    /// The webhooks with this name.
    pub name: Option<String>,
    /// The deleted ones, as long as their logs are kept.
    pub is_deleted: bool,
}

/// How many webhooks a tenant may have.
#[derive(Clone, Copy, Debug)]
pub struct WebhookLimits {
    /// Those that are not deleted.
    pub webhooks: u32,
    /// Deleted ones, kept for their logs until retention removes them.
    pub deleted: u32,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(Pg))]
struct StoredWebhook {
    id: WebhookId,
    #[diesel(embed)]
    settings: WebhookSettings,
    header_names: Vec<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    deleted_at: Option<OffsetDateTime>,
}

impl Ledger {
    /// Registers a webhook, unless its tenant has too many already.
    pub async fn webhook_create(
        &self,
        actor: &Actor,
        new: &NewWebhook,
        most: WebhookLimits,
    ) -> Result<Result<Webhook, Refusal>, LedgerError> {
        let tenant = actor.tenant;
        self.transaction("webhook_create", async |conn| {
            // One registration per tenant at a time, so that the counts stay true.
            lock_registrations(conn, tenant).await?;
            if webhooks::table.find(new.id.as_uuid()).count().get_result::<i64>(conn).await? > 0 {
                return Ok(Err(Refusal::Exists(new.id)));
            }
            let mine = webhooks::table.filter(of(tenant));
            if mine.count().get_result::<i64>(conn).await? >= i64::from(most.webhooks) {
                return Ok(Err(Refusal::TooMany(most.webhooks)));
            }
            if has_deleted(conn, tenant, most.deleted).await? {
                return Ok(Err(Refusal::TooManyDeleted(most.deleted)));
            }
            let row = (new, webhooks::tenant_id.eq(tenant));
            let insert = diesel::insert_into(webhooks::table).values(row).returning(StoredWebhook::as_returning());
            let row: StoredWebhook = insert.get_result(conn).await?;
            let mut details = new.settings.members();
            if !new.headers.names.is_empty() {
                details.insert("header_names".to_owned(), json!(new.headers.names));
            }
            add_history(conn, actor, new.id, Action::Created, Value::Object(details)).await?;
            add_notice(conn, actor, new.id, NoticeType::Created, &[]).await?;
            Ok(Ok(row.webhook(None, None)))
        })
        .await
    }

    /// The tenant's webhooks that the filter lets through, in the order of their registrations.
    pub async fn webhook_list(
        &self,
        tenant: TenantId,
        filter: &WebhookFilter,
        page: Page<WebhookId>,
    ) -> Result<Vec<Webhook>, LedgerError> {
        self.run("webhook_list", async |conn| {
            // A tenant's webhooks are few: they are sorted without an index.
            let (at, id) = place(conn, tenant, page.after).await?;
            let is_later = webhooks::created_at.eq(at).and(webhooks::id.gt(id)).or(webhooks::created_at.gt(at));
            let query = |limit| {
                let mut query = webhooks::table
                    .left_join(webhook_health::table)
                    .filter(webhooks::tenant_id.eq(tenant.as_uuid()).and(is_later))
                    .filter(webhooks::deleted_at.is_not_null().eq(filter.is_deleted))
                    .order((webhooks::created_at, webhooks::id))
                    .limit(limit)
                    .select((StoredWebhook::as_select(), Option::<WebhookHealth>::as_select()))
                    .into_boxed();
                if let Some(id) = &filter.external_id {
                    query = query.filter(webhooks::external_id.eq(id));
                }
                if let Some(name) = &filter.name {
                    query = query.filter(webhooks::name.eq(name));
                }
                query
            };
            let found = load_page(page.limit, query, conn).await?;
            with_backlogs(conn, found).await
        })
        .await
    }

    /// All of the tenant's webhooks, in the order of their registrations, read in pages.
    pub async fn webhooks_all(&self, tenant: TenantId) -> Result<Vec<Webhook>, LedgerError> {
        let (mut all, mut page) = (Vec::new(), Page { after: None, limit: 200 });
        loop {
            let listed = self.webhook_list(tenant, &WebhookFilter::default(), page).await?;
            let is_last = listed.len() < usize::from(page.limit);
            page.after = listed.last().map(|webhook| webhook.id);
            all.extend(listed);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// One of the tenant's webhooks.
    pub async fn webhook_find(&self, tenant: TenantId, id: WebhookId) -> Result<Option<Webhook>, LedgerError> {
        self.run("webhook_find", async |conn| shown(conn, tenant, id).await).await
    }
}

/// Returns true if the tenant has at least `most` deleted webhooks. With so many, first removes those of the latest ones that
/// never had a delivery: a loop of registrations and deletions adds nothing. Retention removes others.
async fn has_deleted(conn: &mut AsyncPgConnection, tenant: TenantId, most: u32) -> QueryResult<bool> {
    let deleted =
        webhooks::table.filter(webhooks::tenant_id.eq(tenant.as_uuid()).and(webhooks::deleted_at.is_not_null()));
    let deleted = usize::try_from(deleted.count().get_result::<i64>(conn).await?).unwrap_or_default();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if deleted < most {
        return Ok(false);
    }
    let remove = sql(REMOVE_UNUSED).bind(tenant.as_uuid());
    let removed = remove.bind(SETTLE_TIME.as_secs_f64()).execute(conn).await?;
    Ok(deleted - removed >= most)
}

// Searches every day for a delivery of each of some webhooks. An ingest may still store one to a webhook that was deleted a
// moment ago. `OFFSET 0` keeps the subquery a look-up, which reads a webhook's log as the README says of it.
const REMOVE_UNUSED: &str = "DELETE FROM webhooks WHERE id = ANY (ARRAY( \
       SELECT id FROM ( \
         SELECT id FROM webhooks WHERE tenant_id = $1 AND deleted_at <= now() - $2 * interval '1 second' \
         ORDER BY deleted_at DESC LIMIT 20 \
       ) AS w \
       WHERE NOT EXISTS ( \
         SELECT FROM deliveries AS d WHERE d.webhook_id = ANY (ARRAY[w.id]) \
         ORDER BY d.webhook_id, d.id LIMIT 1 OFFSET 0 \
       ) \
     ))";

/// The place of a webhook in the list, deleted or not: the time of its registration and its id. If its row is gone, the time
/// is that of its id.
async fn place(
    conn: &mut AsyncPgConnection,
    tenant: TenantId,
    id: Option<WebhookId>,
) -> QueryResult<(OffsetDateTime, Uuid)> {
    let Some(id) = id.map(WebhookId::as_uuid) else { return Ok((OffsetDateTime::UNIX_EPOCH, Uuid::nil())) };
    let one = webhooks::table.find(id).filter(webhooks::tenant_id.eq(tenant.as_uuid())).select(webhooks::created_at);
    let at: Option<OffsetDateTime> = one.first(conn).await.optional()?;
    let of_id = || {
        let (seconds, nanos) = id.get_timestamp()?.to_unix();
        let at = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
        at.replace_nanosecond(nanos).ok()
    };
    Ok((at.or_else(of_id).unwrap_or(OffsetDateTime::UNIX_EPOCH), id))
}

/// One of the tenant's webhooks, with its health and what waits.
async fn shown(conn: &mut AsyncPgConnection, tenant: TenantId, id: WebhookId) -> QueryResult<Option<Webhook>> {
    let query = webhooks::table
        .left_join(webhook_health::table)
        .filter(of(tenant).and(webhooks::id.eq(id)))
        .select((StoredWebhook::as_select(), Option::<WebhookHealth>::as_select()));
    let found = query.load(conn).await?;
    Ok(with_backlogs(conn, found).await?.pop())
}

async fn with_backlogs(
    conn: &mut AsyncPgConnection,
    rows: Vec<(StoredWebhook, Option<WebhookHealth>)>,
) -> QueryResult<Vec<Webhook>> {
    let ids: Vec<_> = rows.iter().map(|(row, _)| row.id).collect();
    let mut backlogs = backlog::of(conn, &ids).await?;
    let with = |(row, health): (StoredWebhook, _)| {
        let backlog = backlogs.remove(&row.id);
        row.webhook(health, backlog)
    };
    Ok(rows.into_iter().map(with).collect())
}

/// The tenant's webhooks that are not deleted.
#[diesel::dsl::auto_type(no_type_alias)]
pub(crate) fn of(tenant: TenantId) -> _ {
    let id: Uuid = tenant.as_uuid();
    webhooks::tenant_id.eq(id).and(webhooks::deleted_at.is_null())
}

diesel::define_sql_function! {
    #[sql_name = "pg_advisory_xact_lock"]
    fn advisory_lock_of(key: BigInt);
}

/// Has other registrations of the tenant wait until this transaction ends.
pub(crate) async fn lock_registrations(conn: &mut AsyncPgConnection, tenant: TenantId) -> QueryResult<()> {
    let (high, low) = tenant.as_uuid().as_u64_pair();
    diesel::select(advisory_lock_of((high ^ low).cast_signed())).execute(conn).await.map(|_| ())
}

impl StoredWebhook {
    fn webhook(self, health: Option<WebhookHealth>, backlog: Option<Backlog>) -> Webhook {
        let Self { id, settings, header_names, created_at, updated_at, deleted_at } = self;
        let (mut health, mut backlog) = (health.unwrap_or_default(), backlog.unwrap_or_default());
        health.failing_since = health.failing_since.filter(|_| health.failure_count > 0);
        // Nothing is attempted while it is paused.
        backlog.next_attempt_at = backlog.next_attempt_at.filter(|_| settings.is_active);
        Webhook { id, settings, header_names, created_at, updated_at, deleted_at, health, backlog }
    }
}
