//! The JSON object in a request's body.

use std::{collections::HashSet, fmt, marker::PhantomData, time::Duration};

use actix_web::{
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap},
    web::{Bytes, Payload},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use tokio::time::timeout;

use super::{problem::ApiError, violation::Violation};

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The marks of UTF-8 and UTF-16.
const BYTE_ORDER_MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"];

/// The members in the order in which they were written, repeated ones included.
#[derive(Debug, PartialEq)]
pub(crate) struct Members<T = Value>(pub(crate) Vec<(String, T)>);

/// Whether a call has to be given a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    /// A missing body has no members and needs no type.
    Optional,
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn members(
    headers: &HeaderMap,
    payload: Payload,
    limit: usize,
    need: Need,
    media_types: &[&str],
) -> Result<Members, ApiError> {
    let (is_optional, is_json) = (need == Need::Optional, is_json(headers, media_types));
    if !is_json && (!is_optional || headers.contains_key(CONTENT_TYPE)) {
        return Err(ApiError::MediaType);
    }
    let body = read(headers, payload, limit).await?;
    match body.is_empty() {
        true if is_optional => Ok(Members(Vec::new())),
        _ if is_json => parse(&body),
        _ => Err(ApiError::MediaType),
    }
}

/// Reads the bytes of a body.
pub(crate) async fn read(headers: &HeaderMap, payload: Payload, limit: usize) -> Result<Bytes, ApiError> {
    if announced(headers).is_some_and(|length| length > limit) {
        return Err(ApiError::BodyTooLarge(limit));
    }
    let received = timeout(BODY_TIMEOUT, payload.to_bytes_limited(limit)).await;
    let within = received.map_err(|_| ApiError::BodyTooSlow(BODY_TIMEOUT))?;
    within.map_err(|_| ApiError::BodyTooLarge(limit))?.map_err(|_| ApiError::IncompleteBody)
}

fn parse(body: &[u8]) -> Result<Members, ApiError> {
    if BYTE_ORDER_MARKS.iter().any(|mark| body.starts_with(mark)) {
        let fault = "it begins with a byte order mark (BOM): send UTF-8 without one";
        return Err(ApiError::MalformedJson(serde_json::Error::custom(fault)));
    }
    // The syntax is checked to the end (400) before the type (422).
    let value: Value = serde_json::from_slice(body).map_err(ApiError::MalformedJson)?;
    if !value.is_object() {
        return Err(ApiError::Fields(vec![Violation::new("", "wrong_type", "the body must be a JSON object")]));
    }
    let members: Members<&RawValue> = serde_json::from_slice(body).map_err(ApiError::MalformedJson)?;
    let repeated: Vec<_> = members.0.iter().flat_map(|(name, value)| repeated(name, value)).collect();
    if !repeated.is_empty() {
        return Err(ApiError::Fields(repeated));
    }
    serde_json::from_slice(body).map_err(ApiError::MalformedJson)
}

/// The repeated members of a member, if that is an object. Of these, a `Value` would keep the last.
fn repeated(field: &str, value: &RawValue) -> Vec<Violation> {
    let Ok(Members::<IgnoredAny>(members)) = serde_json::from_str(value.get()) else { return Vec::new() };
    let mut seen = HashSet::new();
    let repeated = members.iter().filter(|(name, _)| !seen.insert(name));
    let violation =
        |(name, _): &_| Violation::new(format!("{field}.{name}"), "repeated_field", "is given more than once");
    repeated.map(violation).collect()
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Only uncompressed UTF-8 is read. A page of another site cannot send this type without a preflight request.
fn is_json(headers: &HeaderMap, media_types: &[&str]) -> bool {
    let Some(Ok(written)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let mut parts = written.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let is_utf8 = parts.filter_map(|part| part.split_once('=')).all(|(name, value)| {
        !name.trim().eq_ignore_ascii_case("charset") || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    let is_plain =
        headers.get(CONTENT_ENCODING).is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    media_types.iter().any(|known| essence.eq_ignore_ascii_case(known)) && is_utf8 && is_plain
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Collect<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError;
    use serde_json::json;

    use super::*;

    #[test]
    fn members_keep_their_order_and_their_doubles() {
        let members = parse(br#"{"b": 1, "a": [null], "b": "x"}"#).unwrap();
        let expected = [("b", json!(1)), ("a", json!([null])), ("b", json!("x"))];
        assert_eq!(members.0, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn a_repeated_member_of_a_member_is_refused() {
        let Err(ApiError::Fields(faults)) = parse(br#"{"a": {"b": 1, "c": 2, "b": 1, "c": 3}, "d": [{"b": 1}]}"#)
        else {
            panic!("it is accepted");
        };
        let faults: Vec<_> = faults.iter().map(|fault| (fault.field.as_str(), fault.code)).collect();
        assert_eq!(faults, [("a.b", "repeated_field"), ("a.c", "repeated_field")]);
    }

    #[test]
    fn what_is_not_json_is_malformed_and_what_is_not_an_object_is_faulty() {
        for (body, status) in [
            (&b""[..], 400),
            (b"  ", 400),
            (b"{", 400),
            (b"{} {}", 400),
            (b"{'a': 1}", 400),
            (b"{\"a\": NaN}", 400),
            (b"{\"a\": \"\\ud800\"}", 400),
            (b"\xef\xbb\xbf{}", 400),
            (b"{\"a\": \"\xff\"}", 400),
            (b"[1, 2", 400),
            ("[".repeat(100_000).as_bytes(), 400),
            (b"[]", 422),
            (b"null", 422),
            (b"\"{}\"", 422),
        ] {
            let error = parse(body).unwrap_err();
            assert_eq!(
                error.status_code().as_u16(),
                status,
                "{}",
                String::from_utf8_lossy(&body[..body.len().min(20)])
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_named() {
        for body in [&b"\xef\xbb\xbf{\"name\": \"a\"}"[..], b"\xef\xbb\xbf", b"\xff\xfe{\0}\0", b"\xfe\xff\0{\0}"] {
            let said = parse(body).unwrap_err().to_string();
            assert!(said.contains("byte order mark"), "{said}");
        }
        parse("{\"name\": \"\u{feff}\"}".as_bytes()).unwrap();
    }

    #[test]
    fn only_plain_json_in_utf_8_is_read() {
        let is_json = |content_type: &str, coding: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
            if let Some(coding) = coding {
                headers.insert(CONTENT_ENCODING, coding.parse().unwrap());
            }
            is_json(&headers, &["application/json"])
        };
        for good in [
            "application/json",
            "Application/JSON",
            "application/json;charset=UTF-8",
            "application/json ; charset=\"utf-8\"",
        ] {
            assert!(is_json(good, None), "{good}");
        }
        for bad in
            ["", "text/plain", "application/jsonp", "application/json; charset=latin1", "text/plain;application/json"]
        {
            assert!(!is_json(bad, None), "{bad}");
        }
        assert!(is_json("application/json", Some("identity")));
        assert!(!is_json("application/json", Some("gzip")));
        assert!(!super::is_json(&HeaderMap::new(), &["application/json"]));
    }
}
