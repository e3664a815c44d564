//! Standard Webhooks 1.0: the three headers, and their verification as a receiver does it.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{MAX_TOLERANCE_SECONDS, SigningSecret, VerifyError, sign::standard_key};

/// The header with the delivery's id, the same on every attempt.
pub const STANDARD_ID_HEADER: &str = "webhook-id";
/// The header with the attempt's time, in Unix seconds.
pub const STANDARD_TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with the signatures.
pub const STANDARD_SIGNATURE_HEADER: &str = "webhook-signature";

/// The values of the three headers.
#[derive(Clone, Copy, Debug)]
pub struct StandardHeaders<'h> {
    /// Of `webhook-id`.
    pub id: &'h str,
    /// Of `webhook-timestamp`.
    pub timestamp: &'h str,
    /// Of `webhook-signature`.
    pub signature: &'h str,
}

/// Checks the three headers against the raw body, at the time `now_unix` (Unix seconds). One matching `v1` of several
/// signatures, separated by spaces, is enough.
///
/// # Errors
/// A [`VerifyError`]; do not process the body.
pub fn verify_standard(
    secret: &SigningSecret,
    headers: StandardHeaders<'_>,
    body: &[u8],
    now_unix: i64,
    tolerance_seconds: u32,
) -> Result<(), VerifyError> {
    let StandardHeaders { id, timestamp, signature } = headers;
    if tolerance_seconds > MAX_TOLERANCE_SECONDS {
        return Err(VerifyError::ToleranceTooLarge(tolerance_seconds));
    }
    crate::verify::in_time(crate::verify::parse_time(timestamp)?, now_unix, tolerance_seconds)?;
    let digests: Vec<&str> = signature.split(' ').filter_map(|one| one.strip_prefix("v1,")).collect();
    if digests.is_empty() {
        return Err(VerifyError::MissingDigest);
    }
    let key = standard_key(secret).ok_or(VerifyError::BadSecret)?;
    let content = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let digests: Vec<_> = digests.into_iter().filter_map(|digest| STANDARD.decode(digest).ok()).collect();
    crate::verify::matches(&key, &content, &digests)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sign_standard;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNED_AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    /// The secret of the example that the specification of Standard Webhooks publishes.
    fn secret() -> SigningSecret {
        SigningSecret::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned())
    }

    fn verified(id: &str, timestamp: &str, signature: &str, body: &[u8]) -> Result<(), VerifyError> {
        verify_standard(&secret(), StandardHeaders { id, timestamp, signature }, body, SIGNED_AT, 300)
    }

    #[test]
    fn the_signature_is_the_published_one() {
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign_standard(&secret(), ID, SIGNED_AT, BODY).as_deref(), Some(expected));
        assert_eq!(verified(ID, "1614265330", expected, BODY), Ok(()));
    }

    #[test]
    fn id_time_and_body_are_all_signed() {
        let good = sign_standard(&secret(), ID, SIGNED_AT, BODY).unwrap();
        let other = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert_eq!(verified("msg_other", "1614265330", &good, BODY), Err(VerifyError::Mismatch));
        assert_eq!(verified(ID, "1614265331", &good, BODY), Err(VerifyError::Mismatch));
        assert_eq!(verified(ID, "1614265330", &good, b"{}"), Err(VerifyError::Mismatch));
        assert_eq!(verified(ID, "1614265330", other, BODY), Err(VerifyError::Mismatch));
        assert_eq!(verified(ID, "1614265330", &format!("{other} v1a,xyz {good}"), BODY), Ok(()), "one of several");
    }

    #[test]
    fn what_lacks_a_part_or_has_a_bad_one_is_refused() {
        let good = sign_standard(&secret(), ID, SIGNED_AT, BODY).unwrap();
        assert_eq!(verified(ID, "soon", &good, BODY), Err(VerifyError::BadTimestamp));
        assert_eq!(verified(ID, "", &good, BODY), Err(VerifyError::BadTimestamp));
        assert_eq!(verified(ID, "1614265330", "", BODY), Err(VerifyError::MissingDigest));
        assert_eq!(verified(ID, "1614265330", "v2,abc", BODY), Err(VerifyError::MissingDigest));
        assert_eq!(verified(ID, "1614265330", "v1,not base64!", BODY), Err(VerifyError::Mismatch));
        let outside = VerifyError::OutsideTolerance { distance_seconds: 301, tolerance_seconds: 300 };
        assert_eq!(verified(ID, "1614265631", &good, BODY), Err(outside));
        let headers = StandardHeaders { id: ID, timestamp: "1614265330", signature: &good };
        let with = |secret: &str, tolerance| {
            verify_standard(&SigningSecret::from(secret.to_owned()), headers, BODY, SIGNED_AT, tolerance)
        };
        assert_eq!(with("whsec_not base64!", 300), Err(VerifyError::BadSecret));
        assert_eq!(with(secret().expose(), 301), Err(VerifyError::ToleranceTooLarge(301)));
        assert_eq!(sign_standard(&SigningSecret::from("whsec_!".to_owned()), ID, SIGNED_AT, BODY), None);
    }

    proptest! {
        #[test]
        fn any_body_under_any_id_verifies(id in "[0-9a-f-]{1,36}", body: Vec<u8>, at in 0..=i64::MAX) {
            let secret = SigningSecret::generate().unwrap();
            let signature = sign_standard(&secret, &id, at, &body).unwrap();
            let headers = StandardHeaders { id: &id, timestamp: &at.to_string(), signature: &signature };
            prop_assert_eq!(verify_standard(&secret, headers, &body, at, 300), Ok(()));
        }
    }
}
