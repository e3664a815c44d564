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

    fn digest(key: &[u8], data: &[u8]) -> String {
        hex::encode(hmac::sign(&key_of(key), data))
    }

    /// Test cases 1, 2, 3, 4, 6 and 7 of RFC 4231, section 4 (case 5 is about a truncated digest).
    #[test]
    fn the_digest_is_the_published_one() {
        let counted: Vec<u8> = (1..=25).collect();
        let vectors: [(&[u8], &[u8], &str); 6] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (&counted, &[0xcd; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                &[0xaa; 131],
                b"This is a test using a larger than block-size key and a larger than block-size data. \
                  The key needs to be hashed before being used by the HMAC algorithm.",
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ];
        for (key, data, expected) in vectors {
            assert_eq!(digest(key, data), expected);
        }
    }

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
