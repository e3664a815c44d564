//! Admin sessions of the `database` back end (specification, section 5.1).

use diesel::{pg::Pg, prelude::*};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::TenantId;
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use time::OffsetDateTime;

use crate::{connect::pool::Ledger, error::LedgerError, statement::sql, tables::admin_sessions};

/// Expired sessions that one statement deletes.
const PURGE_ROWS: usize = 1000;

/// The SHA-256 of a secret text that shows who calls: of a session id. The ledger knows nothing else of the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CredentialHash(pub(crate) Vec<u8>);

impl CredentialHash {
    /// Hashes the text that the caller sends.
    pub fn of(text: &str) -> Self {
        Self(digest(&SHA256, text.as_bytes()).as_ref().to_vec())
    }
}

/// Who is logged in.
#[derive(Clone, Debug, PartialEq, Eq, Insertable, Queryable, Selectable)]
#[diesel(table_name = admin_sessions, check_for_backend(Pg))]
pub struct Session {
    /// The tenant whose webhooks the session may manage.
    #[diesel(column_name = tenant_id)]
    pub tenant: TenantId,
    /// The user, as the business application names them.
    #[diesel(column_name = user_id)]
    pub user: String,
    /// The role: [`Session::ADMIN`] may manage webhooks.
    pub role: String,
}

impl Session {
    /// The role that may manage webhooks: any other may do nothing.
    pub const ADMIN: &str = "admin";
    /// The role of a session that can do nothing but begin an administrator's, once: its id is a code to log in with.
    pub const LOGIN_CODE: &str = "login_code";
}

/// A session to be stored.
pub struct NewSession {
    /// The hash of its id.
    pub hash: CredentialHash,
    /// Who is logged in.
    pub session: Session,
    /// When it expires.
    pub expires_at: OffsetDateTime,
}

impl NewSession {
    /// A session with a new id: 256 random bits in hexadecimal.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn begin(session: Session, expires_at: OffsetDateTime) -> Result<(String, Self), LedgerError> {
        let id = random_digits()?;
        let new = Self { hash: CredentialHash::of(&id), session, expires_at };
        Ok((id, new))
    }
}

/// Generates 256 random bits in hexadecimal.
pub(crate) fn random_digits() -> Result<String, LedgerError> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).map_err(|_| LedgerError::Randomness)?;
    Ok(hex::encode(random))
}

impl Ledger {
    /// The session with this id, if it exists and has not expired at `now`.
    pub async fn session_find(
        &self,
        hash: &CredentialHash,
        now: OffsetDateTime,
    ) -> Result<Option<Session>, LedgerError> {
        let of_hash = admin_sessions::table.find(&hash.0).filter(admin_sessions::expires_at.gt(now));
        let query = of_hash.select(Session::as_select());
        self.run("session_find", async |conn| query.first(conn).await.optional()).await
    }

    /// Stores a session.
    ///
    /// # Errors
    /// When the database does not answer, or the id is taken.
    pub async fn session_create(&self, new: &NewSession) -> Result<(), LedgerError> {
        self.run("session_create", async |conn| insert(conn, new).await).await
    }

    /// Stores a session in place of another one. Returns `false`, and stores nothing, if there is no such other one.
    ///
    /// # Errors
    /// As [`Ledger::session_create`]. The other session then stays, unless the error [is
    /// unconfirmed](LedgerError::is_unconfirmed).
    pub async fn session_exchange(&self, other: &CredentialHash, new: &NewSession) -> Result<bool, LedgerError> {
        self.transaction("session_exchange", async |conn| {
            let revoked = diesel::delete(admin_sessions::table.find(&other.0)).execute(conn).await? > 0;
            if revoked {
                insert(conn, new).await?;
            }
            Ok(revoked)
        })
        .await
    }

    /// Deletes a session. Returns whether there was one, expired or not.
    pub async fn session_revoke(&self, hash: &CredentialHash) -> Result<bool, LedgerError> {
        Ok(self.sessions_revoke(std::slice::from_ref(hash)).await? > 0)
    }

    /// Deletes sessions, as far as there are such. Returns how many, expired or not.
    pub async fn sessions_revoke(&self, hashes: &[CredentialHash]) -> Result<usize, LedgerError> {
        let ids = hashes.iter().map(|hash| &hash.0);
        let revoke = diesel::delete(admin_sessions::table.filter(admin_sessions::id_sha256.eq_any(ids)));
        self.run("sessions_revoke", async |conn| revoke.execute(conn).await).await
    }

    /// Deletes the sessions that had expired at `now`, 1,000 at a time. Returns how many. Safe to run concurrently.
    pub async fn sessions_purge(&self, now: OffsetDateTime) -> Result<usize, LedgerError> {
        let mut purged = 0;
        loop {
            let deleted = self.run("sessions_purge", async |conn| purge_some(conn, now).await).await?;
            purged += deleted;
            if deleted < PURGE_ROWS {
                return Ok(purged);
            }
        }
    }
}

async fn insert(conn: &mut AsyncPgConnection, new: &NewSession) -> QueryResult<()> {
    diesel::insert_into(admin_sessions::table)
        .values((
            admin_sessions::id_sha256.eq(&new.hash.0),
            &new.session,
            admin_sessions::expires_at.eq(new.expires_at),
        ))
        .execute(conn)
        .await
        .map(|_| ())
}

async fn purge_some(conn: &mut AsyncPgConnection, now: OffsetDateTime) -> QueryResult<usize> {
    sql("DELETE FROM admin_sessions WHERE id_sha256 = ANY (ARRAY( \
           SELECT id_sha256 FROM admin_sessions WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))")
    .bind(now)
    .bind(PURGE_ROWS as i64)
    .execute(conn)
    .await
}
