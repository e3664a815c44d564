//! Verification as a receiver does it (specification, section 5.2.5).

use ring::hmac;

use crate::{SigningSecret, sign};

/// The largest tolerance that the specification permits, which is also its default: 300 seconds.
pub const MAX_TOLERANCE_SECONDS: u32 = 300;

/// Why a delivery must not be processed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VerifyError {
    /// The receiver's own mistake: the tolerance is above [`MAX_TOLERANCE_SECONDS`].
    #[error("a tolerance of {0} s, at most {MAX_TOLERANCE_SECONDS} s is permitted")]
    ToleranceTooLarge(u32),
    /// The header has no `t`.
    #[error("the signature has no timestamp t")]
    MissingTimestamp,
    /// `t` or `webhook-timestamp` is not a number of seconds, or `t` occurs more than once.
    #[error("the signature's timestamp is not one whole number of seconds")]
    BadTimestamp,
    /// The receiver's own mistake: what follows `whsec_` in the secret is not base64. Standard Webhooks only.
    #[error("the secret is not base64")]
    BadSecret,
    /// The header has no `v1`.
    #[error("the signature has no digest v1")]
    MissingDigest,
    /// A `v1` is empty or not lowercase hexadecimal.
    #[error("the signature's digest v1 is not lowercase hexadecimal")]
    BadDigest,
    /// The signature is too old, or too far in the future.
    #[error("the signature's timestamp is {distance_seconds} s from now, the tolerance is {tolerance_seconds} s")]
    OutsideTolerance {
        /// The distance between `t` and now, in seconds.
        distance_seconds: u64,
        /// The tolerance, in seconds.
        tolerance_seconds: u32,
    },
    /// The digest is not that of this body under this secret.
    #[error("the signature does not match the body")]
    Mismatch,
}

struct Signature {
    unix_seconds: i64,
    digests: Vec<Vec<u8>>,
}

/// Checks the value of `X-Service-Signature` against the raw body, at the time `now_unix` (Unix seconds). The header's
/// parts may come in any order, and unknown parts are ignored. One matching `v1` of several is enough.
///
/// # Errors
/// A [`VerifyError`]; do not process the body.
pub fn verify(
    secret: &SigningSecret,
    header: &str,
    body: &[u8],
    now_unix: i64,
    tolerance_seconds: u32,
) -> Result<(), VerifyError> {
    if tolerance_seconds > MAX_TOLERANCE_SECONDS {
        return Err(VerifyError::ToleranceTooLarge(tolerance_seconds));
    }
    let signature = parse(header)?;
    in_time(signature.unix_seconds, now_unix, tolerance_seconds)?;
    matches(&sign::key(secret), body, &signature.digests)
}

/// Whether one of the digests is that of `content`. Reads `content` once, however many digests a stranger sends, and
/// compares them in constant time.
pub(crate) fn matches(key: &hmac::Key, content: &[u8], digests: &[Vec<u8>]) -> Result<(), VerifyError> {
    let expected = hmac::sign(key, content);
    let of_expected = hmac::sign(key, expected.as_ref());
    let is_expected = |digest: &Vec<u8>| hmac::verify(key, digest, of_expected.as_ref()).is_ok();
    if digests.iter().any(is_expected) { Ok(()) } else { Err(VerifyError::Mismatch) }
}

/// # Errors
/// [`VerifyError::OutsideTolerance`] when the two times are further apart.
pub(crate) fn in_time(unix_seconds: i64, now_unix: i64, tolerance_seconds: u32) -> Result<(), VerifyError> {
    let distance_seconds = now_unix.abs_diff(unix_seconds);
    if distance_seconds > u64::from(tolerance_seconds) {
        return Err(VerifyError::OutsideTolerance { distance_seconds, tolerance_seconds });
    }
    Ok(())
}

fn parse(header: &str) -> Result<Signature, VerifyError> {
    let mut times = Vec::new();
    let mut digests = Vec::new();
    for part in header.split(',') {
        match part.split_once('=') {
            Some(("t", seconds)) => times.push(parse_time(seconds)?),
            Some(("v1", digits)) => digests.push(parse_digest(digits)?),
            _ => {}
        }
    }
    let unix_seconds = match times[..] {
        [] => return Err(VerifyError::MissingTimestamp),
        [unix_seconds] => unix_seconds,
        _ => return Err(VerifyError::BadTimestamp),
    };
    if digests.is_empty() { Err(VerifyError::MissingDigest) } else { Ok(Signature { unix_seconds, digests }) }
}

pub(crate) fn parse_time(seconds: &str) -> Result<i64, VerifyError> {
    // Only digits: `parse` would take a sign.
    let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if digits { seconds.parse().ok() } else { None };
    seconds.ok_or(VerifyError::BadTimestamp)
}

fn parse_digest(digits: &str) -> Result<Vec<u8>, VerifyError> {
    if digits.is_empty() || digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(VerifyError::BadDigest);
    }
    hex::decode(digits).map_err(|_| VerifyError::BadDigest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sign;

    const BODY: &[u8] = br#"{"event_type":"quote.closed"}"#;
    const SIGNED_AT: i64 = 1_772_357_400;

    fn secret() -> SigningSecret {
        SigningSecret::from("whsec_0123456789abcdef".to_owned())
    }

    fn header() -> String {
        sign(&secret(), BODY, SIGNED_AT)
    }

    fn digest() -> String {
        header().split_once(",v1=").unwrap().1.to_owned()
    }

    fn verified(header: &str) -> Result<(), VerifyError> {
        verify(&secret(), header, BODY, SIGNED_AT, MAX_TOLERANCE_SECONDS)
    }

    #[test]
    fn the_order_is_free_unknown_parts_are_ignored_and_one_of_several_digests_is_enough() {
        let (digest, other) = (digest(), "00".repeat(32));
        for header in [
            format!("v1={digest},t={SIGNED_AT}"),
            format!("t={SIGNED_AT},v0=zz,v1={digest},v2=new,loose"),
            format!("t={SIGNED_AT},v1={other},v1={digest}"),
            format!("t={SIGNED_AT},v1={digest},v1={other}"),
            format!("t={SIGNED_AT},v1=00,v1={digest}"),
        ] {
            assert_eq!(verified(&header), Ok(()), "{header}");
        }
    }

    #[test]
    fn a_tampered_body_another_secret_or_another_digest_does_not_match() {
        let other = SigningSecret::from("whsec_0123456789abcdee".to_owned());
        let without_prefix = SigningSecret::from("0123456789abcdef".to_owned());
        let tampered = br#"{"event_type":"quote.closeD"}"#;
        assert_eq!(verify(&secret(), &header(), tampered, SIGNED_AT, 300), Err(VerifyError::Mismatch));
        assert_eq!(verify(&secret(), &header(), b"", SIGNED_AT, 300), Err(VerifyError::Mismatch));
        assert_eq!(verify(&other, &header(), BODY, SIGNED_AT, 300), Err(VerifyError::Mismatch));
        assert_eq!(verify(&without_prefix, &header(), BODY, SIGNED_AT, 300), Err(VerifyError::Mismatch));
        assert_eq!(verified(&format!("t={SIGNED_AT},v1={}", "00".repeat(32))), Err(VerifyError::Mismatch));
        assert_eq!(verified(&format!("t={SIGNED_AT},v1={}", &digest()[..62])), Err(VerifyError::Mismatch));
    }

    #[test]
    fn a_header_that_lacks_a_part_or_has_a_bad_one_is_refused() {
        let digest = digest();
        let upper = digest.to_uppercase();
        for (header, expected) in [
            (String::new(), VerifyError::MissingTimestamp),
            (format!("v1={digest}"), VerifyError::MissingTimestamp),
            (format!("t={SIGNED_AT}"), VerifyError::MissingDigest),
            (format!("t={SIGNED_AT},v0={digest}"), VerifyError::MissingDigest),
            (format!("t=,v1={digest}"), VerifyError::BadTimestamp),
            (format!("t=soon,v1={digest}"), VerifyError::BadTimestamp),
            (format!("t=-1,v1={digest}"), VerifyError::BadTimestamp),
            (format!("t=+1,v1={digest}"), VerifyError::BadTimestamp),
            (format!("t=99999999999999999999,v1={digest}"), VerifyError::BadTimestamp),
            (format!("t={SIGNED_AT},t={SIGNED_AT},v1={digest}"), VerifyError::BadTimestamp),
            (format!("t={SIGNED_AT},v1="), VerifyError::BadDigest),
            (format!("t={SIGNED_AT},v1=zz"), VerifyError::BadDigest),
            (format!("t={SIGNED_AT},v1={}", &digest[..63]), VerifyError::BadDigest),
            (format!("t={SIGNED_AT},v1={upper}"), VerifyError::BadDigest),
            (format!("t={SIGNED_AT},v1={digest},v1=zz"), VerifyError::BadDigest),
        ] {
            assert_eq!(verified(&header), Err(expected), "{header}");
        }
    }

    #[test]
    fn the_tolerance_holds_in_both_directions_and_its_bound_is_inside() {
        for (now, distance) in
            [(SIGNED_AT - 301, 301), (SIGNED_AT + 301, 301), (i64::MIN, i64::MIN.abs_diff(SIGNED_AT))]
        {
            let expected = VerifyError::OutsideTolerance { distance_seconds: distance, tolerance_seconds: 300 };
            assert_eq!(verify(&secret(), &header(), BODY, now, 300), Err(expected));
        }
        for now in [SIGNED_AT - 300, SIGNED_AT + 300] {
            assert_eq!(verify(&secret(), &header(), BODY, now, 300), Ok(()));
        }
        assert_eq!(verify(&secret(), &header(), BODY, SIGNED_AT, 0), Ok(()));
        assert!(verify(&secret(), &header(), BODY, SIGNED_AT + 1, 0).is_err());
    }

    #[test]
    fn a_tolerance_above_five_minutes_is_refused_even_for_a_good_signature() {
        assert_eq!(verify(&secret(), &header(), BODY, SIGNED_AT, 301), Err(VerifyError::ToleranceTooLarge(301)));
    }

    proptest! {
        #[test]
        fn any_body_signed_at_any_time_verifies_and_no_other_body_does(
            text in ".+", body: Vec<u8>, other: Vec<u8>, at in 0..=i64::MAX
        ) {
            let secret = SigningSecret::from(text);
            let header = sign(&secret, &body, at);
            prop_assert_eq!(verify(&secret, &header, &body, at, 300), Ok(()));
            if other != body {
                prop_assert_eq!(verify(&secret, &header, &other, at, 300), Err(VerifyError::Mismatch));
            }
        }

        #[test]
        fn no_header_panics_or_passes(header in "(t|v1|v2|=|,|[0-9a-f]|\\PC){0,100}") {
            prop_assert!(verified(&header).is_err());
        }
    }
}
