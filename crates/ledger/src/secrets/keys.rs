//! Which sealing keys are in use, and the change from one to another.

use std::collections::HashMap;

use diesel::sql_types::{Binary, Nullable, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::WebhookId;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    batch::batch_statement,
    connect::pool::Ledger,
    error::LedgerError,
    secrets::{SealedField, SecretKeys, UnsealError},
    statement::sql,
};

/// The number of webhooks of which one step reads the secrets.
const STEP_WEBHOOKS: usize = 200;

/// The number of secrets that a key seals: signing secrets, and the headers of webhooks that have some.
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
        self.unopened > 0 && (self.unopened == self.secrets || self.unopened == STEP_WEBHOOKS as u64)
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
    /// The sealed field of the webhook.
    pub field: SealedField,
    /// Why.
    pub error: UnsealError,
}

/// A webhook with what is sealed of it: the signing secret with its key, and the headers with theirs.
type SealedRow = (WebhookId, (String, Vec<u8>), (Option<String>, Option<Vec<u8>>));

// Changes only webhooks with secrets that are still as they were read, in the order of ids, so that two runs never deadlock.
batch_statement! {
    Reseal -> (SqlUuid,);
    resealed {
        webhook: Uuid => SqlUuid,
        secret_was: Vec<u8> => Binary,
        secret_key_id: String => Text,
        secret_sealed: Vec<u8> => Binary,
        headers_was: Option<Vec<u8>> => Nullable<Binary>,
        headers_key_id: Option<String> => Nullable<Text>,
        headers_sealed: Option<Vec<u8>> => Nullable<Binary>
    };
    ", locked AS MATERIALIZED ( \
       SELECT r.* FROM resealed AS r JOIN webhooks AS w ON w.id = r.webhook \
         AND w.secret_sealed = r.secret_was AND w.headers_sealed IS NOT DISTINCT FROM r.headers_was \
       ORDER BY w.id FOR UPDATE OF w \
     ) UPDATE webhooks AS w SET secret_key_id = r.secret_key_id, secret_sealed = r.secret_sealed, \
         headers_key_id = r.headers_key_id, headers_sealed = r.headers_sealed FROM locked AS r \
       WHERE w.id = r.webhook RETURNING w.id"
}

/// A row for each sealed text.
const SEALED: &str = "WITH sealed AS ( \
       SELECT id, deleted_at, false AS is_of_headers, secret_key_id AS key_id, secret_sealed AS text FROM webhooks \
       UNION ALL \
       SELECT id, deleted_at, true, headers_key_id, headers_sealed FROM webhooks WHERE headers_sealed IS NOT NULL \
     )";

impl Ledger {
    /// Counts the secrets that each key seals, by the key's id. Those of deleted webhooks count while their rows stay.
    pub async fn keys_used(&self, keys: &SecretKeys) -> Result<Vec<KeyUse>, LedgerError> {
        let latest = format!(
            "{SEALED} SELECT id, is_of_headers, key_id, text FROM ( \
               SELECT *, row_number() OVER (PARTITION BY key_id ORDER BY id DESC) AS number FROM sealed \
             ) AS numbered WHERE number <= $2 AND key_id = ANY ($1)"
        );
        let ids: Vec<&str> = keys.ids().collect();
        let latest = sql(latest).bind(&ids).bind(STEP_WEBHOOKS as i64);
        let latest: Vec<(WebhookId, bool, String, Vec<u8>)> =
            self.run("keys_used", async |conn| latest.values(conn).await).await?;
        let mut unopened = HashMap::<String, u64>::new();
        for (webhook, is_of_headers, key_id, text) in latest {
            let field = if is_of_headers { SealedField::Headers } else { SealedField::SigningSecret };
            if keys.open_field(webhook, field, &key_id, &text).map(Zeroizing::new).is_err() {
                *unopened.entry(key_id).or_default() += 1;
            }
        }
        let count = format!(
            "{SEALED} SELECT key_id, count(*) AS secrets, count(deleted_at) AS of_deleted \
             FROM sealed GROUP BY key_id ORDER BY key_id"
        );
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

    /// Takes a step: reads up to two hundred webhooks after `after` with a secret that the first key does not seal, and reseals
    /// with it those of other configured keys. Does not touch a webhook whose secrets change meanwhile; `cursor` then repeats
    /// the step.
    ///
    /// # Errors
    /// When the database does not answer, or the system has no randomness. The step can be taken again.
    pub async fn secrets_reseal(&self, keys: &SecretKeys, after: Option<WebhookId>) -> Result<Resealed, LedgerError> {
        let after = after.map_or(Uuid::nil(), WebhookId::as_uuid);
        let read = "SELECT id, secret_key_id, secret_sealed, headers_key_id, headers_sealed FROM webhooks \
                    WHERE id > $1 AND (secret_key_id <> $2 OR headers_key_id <> $2) ORDER BY id LIMIT $3";
        let first = keys.ids().next().unwrap_or_default();
        let read = sql(read).bind(after).bind(first).bind(STEP_WEBHOOKS as i64);
        let rows: Vec<SealedRow> = self.run("secrets_reseal", async |conn| read.values(conn).await).await?;
        let last = rows.last().filter(|_| rows.len() == STEP_WEBHOOKS).map(|(webhook, ..)| *webhook);
        let (mut statement, mut counts, mut unopened) = (Reseal::default(), HashMap::new(), Vec::new());
        for (webhook, secret, headers) in rows {
            let mut reseal = |field, key_id: &str, text: &[u8]| {
                if key_id == first || keys.ids().all(|id| id != key_id) {
                    return Ok(None);
                }
                match keys.open_field(webhook, field, key_id, text) {
                    Ok(opened) => {
                        let opened = Zeroizing::new(opened);
                        keys.seal_field(webhook, field, &opened).map(Some).map_err(|_| LedgerError::Randomness)
                    }
                    Err(error) => {
                        unopened.push(Unopened { webhook, field, error });
                        Ok(None)
                    }
                }
            };
            let new_secret = reseal(SealedField::SigningSecret, &secret.0, &secret.1)?;
            let headers = headers.0.zip(headers.1);
            let new_headers = match &headers {
                Some((key_id, text)) => reseal(SealedField::Headers, key_id, text)?,
                None => None,
            };
            let count = u64::from(new_secret.is_some()) + u64::from(new_headers.is_some());
            if count > 0 {
                counts.insert(webhook.as_uuid(), count);
                statement.push(webhook, (secret, new_secret), (headers, new_headers));
            }
        }
        let resealed: Vec<(Uuid,)> = match counts.is_empty() {
            true => Vec::new(),
            false => self.run("secrets_reseal", async |conn| statement.load(conn).await).await?,
        };
        let cursor = match resealed.len() < counts.len() {
            true => {
                unopened.clear();
                Some(after.into())
            }
            false => last,
        };
        let resealed = resealed.iter().filter_map(|(webhook,)| counts.get(webhook)).sum();
        Ok(Resealed { resealed, unopened, cursor })
    }
}

/// A sealed text with its key.
type Sealed = (String, Vec<u8>);

impl Reseal {
    fn push(
        &mut self,
        webhook: WebhookId,
        (secret, new_secret): (Sealed, Option<Sealed>),
        (headers, new_headers): (Option<Sealed>, Option<Sealed>),
    ) {
        self.webhook.push(webhook.as_uuid());
        self.secret_was.push(secret.1.clone());
        self.headers_was.push(headers.as_ref().map(|(_, text)| text.clone()));
        let (key_id, text) = new_secret.unwrap_or(secret);
        self.secret_key_id.push(key_id);
        self.secret_sealed.push(text);
        let (key_id, text) = new_headers.or(headers).unzip();
        self.headers_key_id.push(key_id);
        self.headers_sealed.push(text);
    }
}
