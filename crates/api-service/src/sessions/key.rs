//! Keys of programs, in the header `Authorization`.

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use ledger::ApiKey;

use crate::http::ApiError;

/// Returns the key of a request that has the header `Authorization`, which alone decides then. The case of
/// the scheme `Bearer` does not matter. Two headers, another scheme and a text that is no key are answered like an unknown
/// key.
pub(super) fn of(headers: &HeaderMap) -> Option<Result<&str, ApiError>> {
    let mut values = headers.get_all(AUTHORIZATION);
    let value = values.next()?;
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let words = text.and_then(|text| text.trim().split_once(' '));
    let token = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer")).map(|(_, token)| token.trim());
    Some(token.filter(|token| token.starts_with(ApiKey::PREFIX)).ok_or(ApiError::UnknownKey))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: &[&[u8]]) -> Option<Option<String>> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, actix_web::http::header::HeaderValue::from_bytes(value).unwrap());
        }
        of(&headers).map(|key| key.ok().map(str::to_owned))
    }

    #[test]
    fn a_key_follows_its_scheme_in_any_case() {
        for value in [&b"Bearer wk_1"[..], b"bearer wk_1", b"BEARER wk_1", b"Bearer   wk_1 "] {
            assert_eq!(key(&[value]), Some(Some("wk_1".to_owned())), "{value:?}");
        }
        assert_eq!(key(&[]), None);
    }

    #[test]
    fn what_is_no_key_counts_as_an_unknown_one() {
        for values in [
            &[&b""[..]][..],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"wk_1"],
            &[b"Basic d2tfMQ=="],
            &[b"Basic wk_1"],
            &[b"Bearer whsec_1"],
            &[b"Bearer WK_1"],
            &[b"Bearer\twk_1"],
            &[b"Bearer wk_\xff"],
            &[b"Bearer wk_1", b"Bearer wk_1"],
        ] {
            assert_eq!(key(values), Some(None), "{values:?}");
        }
    }
}
