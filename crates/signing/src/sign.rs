//! The two signatures of a delivery: `X-Service-Signature` (specification, section 5.2), and that of Standard Webhooks 1.0,
//! which covers the delivery's id and the attempt's time as well.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hmac;
use zeroize::Zeroizing;

use crate::SigningSecret;

/// The value of `X-Service-Signature` for a body signed at `unix_seconds`: `t=<unix_seconds>,v1=<lowercase hex
/// HMAC-SHA256 of the raw body>`. Only the body is signed (specification, section 5.2.1).
pub fn sign(secret: &SigningSecret, body: &[u8], unix_seconds: i64) -> String {
    let digest = hmac::sign(&key(secret), body);
    format!("t={unix_seconds},v1={}", hex::encode(digest))
}

/// The value of `webhook-signature`: `v1,` and the base64 of the HMAC-SHA256 of `id.unix_seconds.body`. The key is what
/// the text after `whsec_` decodes to as base64: 48 bytes of a [generated](SigningSecret::generate) secret. So the official
/// libraries accept the secret as it was shown. `None` when the text is not base64, which a generated one always is.
pub fn sign_standard(secret: &SigningSecret, id: &str, unix_seconds: i64, body: &[u8]) -> Option<String> {
    let mut context = hmac::Context::with_key(&standard_key(secret)?);
    for part in [id.as_bytes(), b".", unix_seconds.to_string().as_bytes(), b".", body] {
        context.update(part);
    }
    Some(format!("v1,{}", STANDARD.encode(context.sign())))
}

/// The key of a secret: exactly the bytes of its whole text, prefix included.
pub(crate) fn key(secret: &SigningSecret) -> hmac::Key {
    key_of(secret.expose().as_bytes())
}

fn key_of(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

/// The key of Standard Webhooks: what the text after the prefix decodes to as base64.
pub(crate) fn standard_key(secret: &SigningSecret) -> Option<hmac::Key> {
    let text = secret.expose();
    let bytes = Zeroizing::new(STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?);
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest was computed independently, with `openssl dgst -sha256 -hmac <secret>`.
    #[test]
    fn the_header_is_the_time_and_the_digest_of_the_body_under_the_whole_secret() {
        let secret = SigningSecret::from("whsec_0123456789abcdef".to_owned());

        let header = sign(&secret, br#"{"a":1}"#, 1_772_357_400);

        assert_eq!(header, "t=1772357400,v1=7e04bdd8d4ec09f77534df53185d8e16cc8c3f4ccc2220225ed1ab3aa9b54456");
    }

    #[test]
    fn the_time_is_not_part_of_what_is_signed() {
        let secret = SigningSecret::from("whsec_0123456789abcdef".to_owned());
        let digest = |unix_seconds| sign(&secret, b"{}", unix_seconds).split_once(",v1=").unwrap().1.to_owned();
        assert_eq!(digest(1), digest(2));
    }

    #[test]
    fn every_generated_secret_is_a_key_of_48_bytes() {
        let secret = SigningSecret::generate().unwrap();
        let text = secret.expose().strip_prefix("whsec_").unwrap().to_owned();
        assert_eq!(STANDARD.decode(&text).unwrap().len(), 48);
        let signature = sign_standard(&secret, "id", 7, b"{}");
        assert!(signature.is_some());
        assert_eq!(signature, sign_standard(&SigningSecret::from(text), "id", 7, b"{}"), "with or without prefix");
    }
}
