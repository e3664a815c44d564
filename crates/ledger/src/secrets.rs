//! Secrets at rest, of which a webhook has its signing secret and its own headers: AES-256-GCM, with the webhook's id and the
//! field as associated data (crates/README.md, invariant 7).

mod headers;
pub(crate) mod keys;

use std::{fmt, str::FromStr};

use diesel::Insertable;
use domain::WebhookId;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    error::Unspecified,
    rand::{SecureRandom, SystemRandom},
};
use signing::SigningSecret;
use zeroize::Zeroizing;

pub use self::headers::SealedHeaders;
use crate::tables::webhooks;

/// The operator's keys. The first one seals, every one opens.
pub struct SecretKeys {
    keys: Vec<(String, LessSafeKey)>,
    fingerprints: Vec<String>,
}

/// What is wrong with the keys' text. It never contains a key's digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SecretKeysError {
    /// The entry with this number, from 1, is not `id:64 hex digits`.
    #[error("entry {0} is not of the form id:64 hex digits")]
    Malformed(usize),
    /// Two entries have the same id.
    #[error("the key id {0:?} occurs twice")]
    Repeated(String),
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Insertable)]
#[diesel(table_name = webhooks)]
pub struct SealedSecret {
    /// The key that sealed it.
    #[diesel(column_name = secret_key_id)]
    pub key_id: String,
    /// Nonce, ciphertext and tag.
    #[diesel(column_name = secret_sealed)]
    pub sealed: Vec<u8>,
}

/// A field of a webhook that is sealed. A sealed text opens in its own field only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedField {
    /// The signing secret.
    SigningSecret,
    /// The webhook's own headers.
    Headers,
}

impl SealedField {
    /// The field for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SigningSecret => "signing secret",
            Self::Headers => "headers",
        }
    }
}

/// Why a stored secret cannot be opened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnsealError {
    /// Its key is not among the configured ones.
    #[error("the key {0:?} is not configured")]
    UnknownKey(String),
    /// The key does not fit, or the row was changed or moved to another webhook.
    #[error("the sealed secret does not open with the key {0:?}")]
    DoesNotOpen(String),
}

impl FromStr for SecretKeys {
    type Err = SecretKeysError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut keys, mut fingerprints): (Vec<(String, LessSafeKey)>, _) = (Vec::new(), Vec::new());
        for (index, entry) in text.split(',').map(str::trim).enumerate() {
            let malformed = || SecretKeysError::Malformed(index + 1);
            let (id, digits) = entry.split_once(':').ok_or_else(malformed)?;
            let bytes: [u8; 32] =
                hex::decode(digits).ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
            if id.is_empty() {
                return Err(malformed());
            }
            if keys.iter().any(|(known, _)| known == id) {
                return Err(SecretKeysError::Repeated(id.to_owned()));
            }
            let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|Unspecified| malformed())?;
            fingerprints.push(hex::encode(&digest(&SHA256, &bytes).as_ref()[..4]));
            keys.push((id.to_owned(), LessSafeKey::new(key)));
        }
        Ok(Self { keys, fingerprints })
    }
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

impl SecretKeys {
    /// The keys' ids. The first is that of the key that seals.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(id, _)| id.as_str())
    }

    /// Each key's id with the first 8 hex digits of its SHA-256: shows whether hosts mean the same key by an id, and
    /// nothing of the key.
    pub fn fingerprints(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().zip(&self.fingerprints).map(|((id, _), fingerprint)| (id.as_str(), fingerprint.as_str()))
    }

    /// Seals a webhook's secret with the first key.
    ///
    /// # Errors
    /// [`Unspecified`] when the system has no randomness.
    pub fn seal(&self, webhook: WebhookId, secret: &SigningSecret) -> Result<SealedSecret, Unspecified> {
        let (key_id, sealed) = self.seal_field(webhook, SealedField::SigningSecret, secret.expose())?;
        Ok(SealedSecret { key_id, sealed })
    }

    /// Opens a webhook's secret.
    ///
    /// # Errors
    /// [`UnsealError`] when its key is not configured or does not fit.
    pub fn open(&self, webhook: WebhookId, secret: &SealedSecret) -> Result<SigningSecret, UnsealError> {
        let opened = self.open_field(webhook, SealedField::SigningSecret, &secret.key_id, &secret.sealed);
        opened.map(SigningSecret::from)
    }

    /// Seals a field of a webhook with the first key. Returns the key's id, and nonce, ciphertext and tag.
    fn seal_field(&self, webhook: WebhookId, field: SealedField, text: &str) -> Result<(String, Vec<u8>), Unspecified> {
        let (id, key) = self.keys.first().ok_or(Unspecified)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce)?;
        let mut text = text.as_bytes().to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad(webhook, field), &mut text)?;
        Ok((id.clone(), [&nonce[..], &text].concat()))
    }

    /// Opens a field of a webhook. The caller wipes the text.
    fn open_field(
        &self,
        webhook: WebhookId,
        field: SealedField,
        key_id: &str,
        sealed: &[u8],
    ) -> Result<String, UnsealError> {
        let unknown = || UnsealError::UnknownKey(key_id.to_owned());
        let (_, key) = self.keys.iter().find(|(id, _)| id == key_id).ok_or_else(unknown)?;
        open(key, aad(webhook, field), sealed).ok_or_else(|| UnsealError::DoesNotOpen(key_id.to_owned()))
    }
}

/// Wipes its own copy of the text.
fn open(key: &LessSafeKey, aad: Aad<[u8; 17]>, sealed: &[u8]) -> Option<String> {
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut text = Zeroizing::new(text.to_vec());
    let opened = key.open_in_place(nonce, aad, text.as_mut_slice()).ok()?;
    std::str::from_utf8(opened).ok().map(str::to_owned)
}

fn aad(webhook: WebhookId, field: SealedField) -> Aad<[u8; 17]> {
    let mut data = [field as u8; 17];
    data[..16].copy_from_slice(webhook.as_uuid().as_bytes());
    Aad::from(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "one:0000000000000000000000000000000000000000000000000000000000000001";
    const TWO: &str = "two:0000000000000000000000000000000000000000000000000000000000000002";

    fn keys(entries: &[&str]) -> SecretKeys {
        entries.join(",").parse().unwrap()
    }

    fn webhook(n: u128) -> WebhookId {
        uuid::Uuid::from_u128(n).into()
    }

    #[test]
    fn a_secret_opens_after_the_keys_were_rotated_and_only_for_its_own_webhook() {
        let secret = SigningSecret::from("whsec_test".to_owned());
        let sealed = keys(&[ONE]).seal(webhook(1), &secret).unwrap();
        assert_eq!(sealed.key_id, "one");
        assert!(!sealed.sealed.windows(5).any(|window| window == b"whsec"));
        let rotated = keys(&[TWO, ONE]);
        assert_eq!(rotated.open(webhook(1), &sealed).unwrap().expose(), "whsec_test");
        assert_eq!(rotated.seal(webhook(1), &secret).unwrap().key_id, "two");
        assert_eq!(rotated.open(webhook(2), &sealed).unwrap_err(), UnsealError::DoesNotOpen("one".into()));
        assert_eq!(keys(&[TWO]).open(webhook(1), &sealed).unwrap_err(), UnsealError::UnknownKey("one".into()));
        for at in 0..sealed.sealed.len() {
            let mut bent = sealed.clone();
            bent.sealed[at] ^= 1;
            assert!(rotated.open(webhook(1), &bent).is_err());
        }
    }

    #[test]
    fn bad_keys_are_refused_without_being_shown() {
        for (text, expected) in [
            ("", SecretKeysError::Malformed(1)),
            (&ONE[4..], SecretKeysError::Malformed(1)),
            (&ONE[..20], SecretKeysError::Malformed(1)),
            (&format!("{ONE},two:xyz"), SecretKeysError::Malformed(2)),
            (&format!("{ONE},{ONE}"), SecretKeysError::Repeated("one".into())),
        ] {
            assert_eq!(text.parse::<SecretKeys>().unwrap_err(), expected);
        }
        assert_eq!(format!("{:?}", keys(&[ONE, TWO])), r#"["one", "two"]"#);
    }
}
