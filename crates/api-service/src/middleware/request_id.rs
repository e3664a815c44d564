//! Request ids, by which an administrator's report is found in the log.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header in requests and answers.
pub(crate) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 128;

/// The caller's id if it is 1 to 128 visible ASCII characters, else a new UUID.
pub(crate) struct RequestId(String);

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID_HEADER).and_then(|value| value.to_str().ok());
        let usable =
            given.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_graphic()));
        Self(usable.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn header(&self) -> HeaderValue {
        // Visible ASCII characters always make a valid header value.
        HeaderValue::from_str(&self.0).unwrap_or(HeaderValue::from_static("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(given: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID_HEADER, HeaderValue::from_bytes(given).unwrap());
        RequestId::of(&headers).0
    }

    #[test]
    fn a_usable_id_is_kept() {
        for given in ["a", "~!{}\"<script>", &"x".repeat(128)] {
            assert_eq!(id(given.as_bytes()), given);
        }
    }

    #[test]
    fn an_unusable_one_is_replaced_by_a_uuid_of_version_7() {
        for given in [&b""[..], b"a b", b"a\tb", b"\xc3\xa4", "x".repeat(129).as_bytes()] {
            let made = id(given).parse::<Uuid>().unwrap();
            assert_eq!(made.get_version_num(), 7, "{given:?}");
        }
    }
}
