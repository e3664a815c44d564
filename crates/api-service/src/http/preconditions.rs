//! The headers that make a registration or a change safe to repeat: `Idempotency-Key`, `ETag` and `If-Match`.

use std::future::{self, Ready};

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{ETag, EntityTag, HeaderMap, IF_MATCH, IfMatch},
};
use domain::time_text::written;
use time::OffsetDateTime;

use super::{problem::ApiError, violation::Violation};

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The maximum length of an `Idempotency-Key`, in characters.
const MAX_KEY_CHARS: usize = 255;

/// A registration's `Idempotency-Key`, if the request has one.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl FromRequest for IdempotencyKey {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let key = idempotency_key(request.headers());
        future::ready(key.map(Self).map_err(|wrong| ApiError::Headers(vec![wrong])))
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Violation> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY);
    let Some(key) = keys.next() else { return Ok(None) };
    let wrong = |code, message| Err(Violation::new(IDEMPOTENCY_KEY, code, message));
    if keys.next().is_some() {
        return wrong("repeated_header", "is given more than once");
    }
    match key.to_str() {
        Ok(text) if (1..=MAX_KEY_CHARS).contains(&text.len()) && !text.contains('\t') => Ok(Some(text.to_owned())),
        _ => wrong("invalid_idempotency_key", "must be 1 to 255 visible characters of ASCII"),
    }
}

/// The tag of a webhook's settings: the time of their last change.
pub(crate) fn tag(updated_at: OffsetDateTime) -> ETag {
    ETag(EntityTag::new_strong(written(updated_at).unwrap_or_default()))
}

/// The condition `If-Match` (RFC 9110, section 13.1.1), if the request has one. A tag that cannot be read matches nothing.
pub(crate) struct Precondition(Option<IfMatch>);

impl FromRequest for Precondition {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let has_one = request.headers().contains_key(IF_MATCH);
        let read = || actix_web::http::header::Header::parse(request).unwrap_or(IfMatch::Items(Vec::new()));
        future::ready(Ok(Self(has_one.then(read))))
    }
}

impl Precondition {
    /// No condition.
    pub(crate) const NONE: Self = Self(None);

    /// Checks the condition against the last change of the settings.
    pub(crate) fn check(&self, updated_at: OffsetDateTime) -> Result<(), ApiError> {
        match &self.0 {
            Some(IfMatch::Items(tags)) if !tags.iter().any(|given| given.strong_eq(&tag(updated_at).0)) => {
                Err(ApiError::ChangedMeanwhile)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{http::header::HeaderName, test::TestRequest};
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_key_is_one_header_of_visible_characters() {
        let read = |keys: &[&str]| {
            let mut headers = HeaderMap::new();
            for key in keys {
                headers.append(HeaderName::from_static("idempotency-key"), key.parse().unwrap());
            }
            idempotency_key(&headers).map_err(|wrong| wrong.code)
        };
        let longest = "k".repeat(255);
        for (keys, expected) in [
            (&[][..], Ok(None)),
            (&["a b~"], Ok(Some("a b~".to_owned()))),
            (&[longest.as_str()], Ok(Some(longest.clone()))),
            (&[format!("{longest}k").as_str()], Err("invalid_idempotency_key")),
            (&[""], Err("invalid_idempotency_key")),
            (&["a\tb"], Err("invalid_idempotency_key")),
            (&["ä"], Err("invalid_idempotency_key")),
            (&["a", "a"], Err("repeated_header")),
        ] {
            assert_eq!(read(keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn a_condition_holds_for_any_of_its_strong_tags() {
        let updated_at = datetime!(2026-03-01 09:00:00.123456 UTC);
        let own = r#""2026-03-01T09:00:00.123456Z""#;
        assert_eq!(tag(updated_at).0.to_string(), own);
        for (given, holds) in [
            (vec![], true),
            (vec!["*"], true),
            (vec![own], true),
            (vec![r#""x""#, own], true),
            (vec![&*format!(r#"W/"x", {own}"#)], true),
            (vec![r#""2026-03-01T09:00:00.123457Z""#], false),
            (vec![&*format!("W/{own}")], false),
            (vec!["2026-03-01T09:00:00.123456Z"], false),
            (vec![""], false),
        ] {
            let request =
                given.iter().fold(TestRequest::default(), |request, tags| request.append_header((IF_MATCH, *tags)));
            let Ok(condition) = Precondition::from_request(&request.to_http_request(), &mut Payload::None).into_inner()
            else {
                panic!("a condition is always read")
            };
            assert_eq!(condition.check(updated_at).is_ok(), holds, "{given:?}");
        }
    }
}
