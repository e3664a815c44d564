//! Which sealing keys are in use, and the change from one to another.

use std::collections::HashMap;

use diesel::sql_types::{Binary, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::WebhookId;
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    connect::pool::Ledger,
    error::LedgerError,
    secrets::{SealedSecret, SecretKeys, UnsealError},
    statement::sql,
};

/// Secrets that one step reads.
const STEP_SECRETS: usize = 200;

/// How many secrets a key seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The key's id.
    pub key_id: String,
    /// The secrets of all webhooks.
    pub secrets: u64,
    /// Of these, those of deleted webhooks that retention still keeps.
    pub of_deleted: u64,
    /// How many of the latest two hundred do not open with the configured key of this id. 0 when none is configured.
    pub unopened: u64,
}

impl KeyUse {
    /// Whether none of the latest opens: the configured key then has other digits than the one that sealed them.
    pub const fn is_wrong(&self) -> bool {
        self.unopened > 0 && (self.unopened == self.secrets || self.unopened == STEP_SECRETS as u64)
    }
}

/// The result of a step.
#[derive(Debug, Default)]
pub struct Resealed {
    /// Secrets sealed with the first key.
    pub resealed: u64,
    /// Secrets that do not open.
    pub unopened: Vec<Unopened>,
    /// The cursor of the next step. `None` at the end.
    pub cursor: Option<WebhookId>,
}

/// A secret that does not open. It stays as it is.
#[derive(Debug)]
pub struct Unopened {
    /// Its webhook.
    pub webhook: WebhookId,
    /// Why.
    pub error: UnsealError,
}

/// A webhook with its secret: the key, the sealed bytes, and whether the key is configured.
type SecretRow = (WebhookId, String, Vec<u8>, bool);

// Changes only secrets that are still as they were read, in the order of ids, so that two runs never deadlock.
batch_statement! {
    Reseal -> (SqlUuid,);
    secrets { webhook: Uuid => SqlUuid, was: Vec<u8> => Binary, key_id: String => Text, sealed: Vec<u8> => Binary };
    ", locked AS MATERIALIZED ( \
       SELECT s.* FROM secrets AS s JOIN webhooks AS w ON w.id = s.webhook AND w.secret_sealed = s.was \
       ORDER BY w.id FOR UPDATE OF w \
     ) UPDATE webhooks AS w SET secret_key_id = s.key_id, secret_sealed = s.sealed FROM locked AS s \
       WHERE w.id = s.webhook RETURNING w.id"
}

impl Ledger {
    /// Counts the secrets that each key seals, by the key's id. Those of deleted webhooks count while their rows stay.
    pub async fn keys_used(&self, keys: &SecretKeys) -> Result<Vec<KeyUse>, LedgerError> {
        let latest = "SELECT id, secret_key_id AS key_id, secret_sealed AS sealed, secret_key_id = ANY ($1) AS is_configured \
                      FROM (SELECT *, row_number() OVER (PARTITION BY secret_key_id ORDER BY id DESC) AS number \
                            FROM webhooks) AS numbered WHERE number <= $2";
        let ids: Vec<&str> = keys.ids().collect();
        let latest = sql(latest).bind(&ids).bind(STEP_SECRETS as i64);
        let latest: Vec<SecretRow> = self.run("keys_used", async |conn| latest.values(conn).await).await?;
        let mut unopened = HashMap::<String, u64>::new();
        for (webhook, key_id, sealed, _) in latest.into_iter().filter(|(.., is_configured)| *is_configured) {
            let secret = SealedSecret { key_id, sealed };
            if keys.open(webhook, &secret).is_err() {
                *unopened.entry(secret.key_id).or_default() += 1;
            }
        }
        let count = "SELECT secret_key_id AS key_id, count(*) AS secrets, count(deleted_at) AS of_deleted \
                     FROM webhooks GROUP BY secret_key_id ORDER BY secret_key_id";
        let rows = self.run("keys_used", async |conn| sql(count).values(conn).await).await?;
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let used = |(key_id, secrets, of_deleted): (String, i64, i64)| KeyUse {
            unopened: unopened.get(&key_id).copied().unwrap_or_default(),
            key_id,
            secrets: number(secrets),
            of_deleted: number(of_deleted),
        };
        Ok(rows.into_iter().map(used).collect())
    }

    /// Takes a step: reads up to two hundred secrets after `after` that the first key does not seal, and reseals with
    /// it those of other configured keys. Does not touch a secret that changes meanwhile; `cursor` then repeats the
    /// step.
    ///
    /// # Errors
    /// When the database does not answer, or the system has no randomness. The step can be taken again.
    pub async fn secrets_reseal(&self, keys: &SecretKeys, after: Option<WebhookId>) -> Result<Resealed, LedgerError> {
        let after = after.map_or(Uuid::nil(), WebhookId::as_uuid);
        let read = "SELECT id, secret_key_id AS key_id, secret_sealed AS sealed, secret_key_id = ANY ($3) AS is_configured \
                    FROM webhooks WHERE id > $1 AND secret_key_id <> $2 ORDER BY id LIMIT $4";
        let ids: Vec<&str> = keys.ids().collect();
        let first = keys.ids().next().unwrap_or_default();
        let read = sql(read).bind(after).bind(first).bind(&ids).bind(STEP_SECRETS as i64);
        let rows: Vec<SecretRow> = self.run("secrets_reseal", async |conn| read.values(conn).await).await?;
        let last = rows.last().filter(|_| rows.len() == STEP_SECRETS).map(|(webhook, ..)| *webhook);
        let (mut statement, mut unopened) = (Reseal::default(), Vec::new());
        for (webhook, key_id, sealed, _) in rows.into_iter().filter(|(.., is_configured)| *is_configured) {
            let was = SealedSecret { key_id, sealed };
            match keys.open(webhook, &was) {
                Ok(secret) => {
                    let SealedSecret { key_id, sealed } =
                        keys.seal(webhook, &secret).map_err(|_| LedgerError::Randomness)?;
                    statement.webhook.push(webhook.as_uuid());
                    statement.was.push(was.sealed);
                    statement.key_id.push(key_id);
                    statement.sealed.push(sealed);
                }
                Err(error) => unopened.push(Unopened { webhook, error }),
            }
        }
        let tried = statement.webhook.len();
        let mut resealed: Vec<(Uuid,)> = Vec::new();
        if tried > 0 {
            resealed = self.run("secrets_reseal", async |conn| statement.load(conn).await).await?;
        }
        if resealed.len() < tried {
            unopened.clear();
            return Ok(Resealed { resealed: resealed.len() as u64, unopened, cursor: Some(after.into()) });
        }
        Ok(Resealed { resealed: tried as u64, unopened, cursor: last })
    }
}
