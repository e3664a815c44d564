//! The digest and the header that carries it (specification, section 5.2).

use ring::hmac;

use crate::SigningSecret;

/// The key of a secret: exactly the bytes of its whole text, prefix included.
pub(crate) fn key(secret: &SigningSecret) -> hmac::Key {
    key_of(secret.expose().as_bytes())
}

fn key_of(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

/// The value of `X-Service-Signature` for a body signed at `unix_seconds`: `t=<unix_seconds>,v1=<lowercase hex
/// HMAC-SHA256 of the raw body>`. Only the body is signed (specification, section 5.2.1).
pub fn sign(secret: &SigningSecret, body: &[u8], unix_seconds: i64) -> String {
    let digest = hmac::sign(&key(secret), body);
    format!("t={unix_seconds},v1={}", hex::encode(digest))
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
}
