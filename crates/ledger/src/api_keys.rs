//! Keys by which programs call the API. The ledger has their hashes alone.

use diesel::{pg::Pg, prelude::*};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{KeyId, NoticeType, TenantId};
use time::{Date, OffsetDateTime};

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    history::Actor,
    lists::Page,
    notices::add_key_notice,
    refusal::Refusal,
    sessions::{CredentialHash, random_digits},
    tables::api_keys,
    webhook::lock_registrations,
};

/// A key, without the text that a program sends.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = api_keys, check_for_backend(Pg))]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// Its tenant.
    #[diesel(column_name = tenant_id)]
    pub tenant: TenantId,
    /// Its name, for people. Several keys may have one.
    pub name: String,
    /// The user who created it, as the business application names its users.
    pub created_by: String,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// When it expires. `None`: never.
    pub expires_at: Option<OffsetDateTime>,
    /// The latest day, in UTC, on which a program used it.
    pub last_used_on: Option<Date>,
}

impl ApiKey {
    /// The maximum of keys of a tenant. Expired ones count until they are revoked, or deleted by retention.
    pub const MAX_PER_TENANT: u16 = 20;
    /// The beginning of every key's text, by which scanners of leaked secrets know it.
    pub const PREFIX: &str = "wk_";

    /// Generates the text of a key: the prefix, and 256 random bits in hexadecimal.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<String, LedgerError> {
        Ok(format!("{}{}", Self::PREFIX, random_digits()?))
    }

    /// The key as the actor of what a program does. Names need not be unique, ids are.
    pub fn actor(&self) -> String {
        format!("key \"{}\" ({})", self.name, self.id)
    }
}

/// A key to be stored.
pub struct NewApiKey {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// When it expires. `None`: never.
    pub expires_at: Option<OffsetDateTime>,
    /// The hash of its text.
    pub hash: CredentialHash,
}

impl Ledger {
    /// The key with this text, if it exists and has not expired at `now`.
    pub async fn key_find(&self, hash: &CredentialHash, now: OffsetDateTime) -> Result<Option<ApiKey>, LedgerError> {
        let is_valid = api_keys::expires_at.is_null().or(api_keys::expires_at.gt(now));
        let of_hash = api_keys::table.filter(api_keys::key_sha256.eq(&hash.0).and(is_valid));
        let query = of_hash.select(ApiKey::as_select());
        self.run("key_find", async |conn| query.first(conn).await.optional()).await
    }

    /// Notes that a key was used on a day, unless a use on this day or a later one is known.
    pub async fn key_used(&self, id: KeyId, day: Date) -> Result<(), LedgerError> {
        let is_earlier = api_keys::last_used_on.is_null().or(api_keys::last_used_on.lt(day));
        let update = diesel::update(api_keys::table.find(id).filter(is_earlier)).set(api_keys::last_used_on.eq(day));
        self.run("key_used", async |conn| update.execute(conn).await.map(|_| ())).await
    }

    /// A page of the tenant's keys, expired ones too, in the order of their ids.
    pub async fn key_list(&self, tenant: TenantId, page: Page<KeyId>) -> Result<Vec<ApiKey>, LedgerError> {
        let after = page.after.unwrap_or(uuid::Uuid::nil().into());
        let of_page = api_keys::table.filter(api_keys::tenant_id.eq(tenant).and(api_keys::id.gt(after)));
        let query = of_page.order(api_keys::id).limit(page.limit.into()).select(ApiKey::as_select());
        self.run("key_list", async |conn| query.load(conn).await).await
    }

    /// Stores a key and adds its notice, unless the tenant has too many.
    pub async fn key_create(&self, actor: &Actor, new: &NewApiKey) -> Result<Result<ApiKey, Refusal>, LedgerError> {
        self.transaction("key_create", async |conn| {
            // One creation per tenant at a time, so that the count stays true.
            lock_registrations(conn, actor.tenant).await?;
            if api_keys::table.find(new.id).count().get_result::<i64>(conn).await? > 0 {
                return Ok(Err(Refusal::KeyExists));
            }
            let count = api_keys::table.filter(api_keys::tenant_id.eq(actor.tenant)).count();
            if count.get_result::<i64>(conn).await? >= i64::from(ApiKey::MAX_PER_TENANT) {
                return Ok(Err(Refusal::TooManyKeys(ApiKey::MAX_PER_TENANT)));
            }
            let row = (
                api_keys::id.eq(new.id),
                api_keys::tenant_id.eq(actor.tenant),
                api_keys::name.eq(&new.name),
                api_keys::key_sha256.eq(&new.hash.0),
                api_keys::created_by.eq(&actor.user),
                api_keys::expires_at.eq(new.expires_at),
            );
            let insert = diesel::insert_into(api_keys::table).values(row).returning(ApiKey::as_returning());
            let key = insert.get_result(conn).await?;
            notify(conn, actor, NoticeType::KeyCreated, &key).await?;
            Ok(Ok(key))
        })
        .await
    }

    /// Deletes one of the tenant's keys and adds its notice. Returns the key, or `None` if there is no such key.
    pub async fn key_revoke(&self, actor: &Actor, id: KeyId) -> Result<Option<ApiKey>, LedgerError> {
        self.transaction("key_revoke", async |conn| {
            let one = api_keys::table.find(id).filter(api_keys::tenant_id.eq(actor.tenant));
            let revoked = diesel::delete(one).returning(ApiKey::as_returning());
            let revoked: Option<ApiKey> = revoked.get_result(conn).await.optional()?;
            if let Some(key) = &revoked {
                notify(conn, actor, NoticeType::KeyRevoked, key).await?;
            }
            Ok(revoked)
        })
        .await
    }

    /// Deletes all keys of the tenant and adds a notice of each. Returns how many there were.
    pub async fn keys_revoke(&self, actor: &Actor) -> Result<usize, LedgerError> {
        self.transaction("keys_revoke", async |conn| {
            let all = api_keys::table.filter(api_keys::tenant_id.eq(actor.tenant));
            let revoked: Vec<ApiKey> = diesel::delete(all).returning(ApiKey::as_returning()).get_results(conn).await?;
            for key in &revoked {
                notify(conn, actor, NoticeType::KeyRevoked, key).await?;
            }
            Ok(revoked.len())
        })
        .await
    }
}

async fn notify(conn: &mut AsyncPgConnection, actor: &Actor, notice_type: NoticeType, key: &ApiKey) -> QueryResult<()> {
    add_key_notice(conn, actor, notice_type, (key.id, &key.name, key.expires_at)).await
}
