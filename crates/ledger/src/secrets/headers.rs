//! Webhooks' own headers at rest.

use diesel::prelude::*;
use domain::{ReceiverHeaders, WebhookId};
use ring::error::Unspecified;

use super::{SealedField, SecretKeys, UnsealError};
use crate::tables::webhooks;

/// The headers of a webhook as they are stored: names with values, sealed together. Both columns are null if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, AsChangeset, Insertable, Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(diesel::pg::Pg), treat_none_as_null = true)]
pub struct SealedHeaders {
    /// The key that sealed them.
    #[diesel(column_name = headers_key_id)]
    pub key_id: Option<String>,
    /// Nonce, ciphertext and tag.
    #[diesel(column_name = headers_sealed)]
    pub sealed: Option<Vec<u8>>,
}

impl SecretKeys {
    /// Seals a webhook's headers with the first key.
    ///
    /// # Errors
    /// [`Unspecified`] when the system has no randomness.
    pub fn seal_headers(&self, webhook: WebhookId, headers: &ReceiverHeaders) -> Result<SealedHeaders, Unspecified> {
        if headers.is_empty() {
            return Ok(SealedHeaders::default());
        }
        let (key_id, sealed) = self.seal_field(webhook, SealedField::Headers, headers.text())?;
        Ok(SealedHeaders { key_id: Some(key_id), sealed: Some(sealed) })
    }

    /// Opens a webhook's headers.
    ///
    /// # Errors
    /// [`UnsealError`] when their key is not configured or does not fit.
    pub fn open_headers(&self, webhook: WebhookId, stored: &SealedHeaders) -> Result<ReceiverHeaders, UnsealError> {
        let SealedHeaders { key_id: Some(key_id), sealed: Some(sealed) } = stored else {
            return Ok(ReceiverHeaders::default());
        };
        self.open_field(webhook, SealedField::Headers, key_id, sealed).map(ReceiverHeaders::from_text)
    }
}

#[cfg(test)]
mod tests {
    use domain::HeaderChange;
    use signing::SigningSecret;

    use super::*;
    use crate::SealedSecret;

    fn keys(letters: &str) -> SecretKeys {
        let key = |letter: char| format!("{letter}:{}", hex::encode([letter as u8; 32]));
        letters.chars().map(key).collect::<Vec<_>>().join(",").parse().unwrap()
    }

    fn webhook(n: u128) -> WebhookId {
        uuid::Uuid::from_u128(n).into()
    }

    #[test]
    fn headers_open_with_their_key_for_their_webhook_and_their_field_only() {
        let mut change = HeaderChange::default();
        change.add("Authorization", Some("Bearer secret")).unwrap();
        let headers = ReceiverHeaders::default().changed(&change).unwrap();
        let stored = keys("a").seal_headers(webhook(1), &headers).unwrap();
        let (key_id, sealed) = (stored.key_id.clone().unwrap(), stored.sealed.clone().unwrap());
        assert!(key_id == "a" && !sealed.windows(6).any(|window| window == b"secret" || window == b"Author"));
        assert_eq!(keys("ba").open_headers(webhook(1), &stored).unwrap(), headers);
        let does_not_open = Err(UnsealError::DoesNotOpen("a".into()));
        assert_eq!(keys("a").open_headers(webhook(2), &stored), does_not_open);
        assert_eq!(keys("b").open_headers(webhook(1), &stored), Err(UnsealError::UnknownKey("a".into())));
        // Neither opens in the other one's place.
        let as_secret = SealedSecret { key_id, sealed };
        assert_eq!(keys("a").open(webhook(1), &as_secret).unwrap_err(), UnsealError::DoesNotOpen("a".into()));
        let secret = keys("a").seal(webhook(1), &SigningSecret::from("X-A: a\n".to_owned())).unwrap();
        let as_headers = SealedHeaders { key_id: Some(secret.key_id), sealed: Some(secret.sealed) };
        assert_eq!(keys("a").open_headers(webhook(1), &as_headers), does_not_open);
    }

    #[test]
    fn no_headers_need_no_key() {
        let none = keys("a").seal_headers(webhook(1), &ReceiverHeaders::default()).unwrap();
        assert_eq!(none, SealedHeaders { key_id: None, sealed: None });
        assert!(keys("b").open_headers(webhook(2), &none).unwrap().is_empty());
    }
}
