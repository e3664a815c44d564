//! Ids in paths.

use std::{future, str::FromStr};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use domain::{DeliveryId, EventId, KeyId, WebhookId};
use uuid::{Uuid, fmt::Hyphenated};

use super::problem::ApiError;

/// An id in the path, in the API's own form unless it comes from elsewhere; upper case is tolerated. A malformed id is not
/// found, like an unknown one.
/// A handler that takes a `Result` of it judges the id after something else.
pub(crate) struct Id<T>(pub(crate) T);

/// What has an id in paths.
pub(crate) trait InPath: FromStr {
    /// The id's name in the routes.
    const NAME: &str;
    /// How long its text is, unless any form of a UUID will do.
    const LENGTH: Option<usize> = Some(Hyphenated::LENGTH);
}

impl InPath for WebhookId {
    const NAME: &str = "id";
}

impl InPath for KeyId {
    const NAME: &str = "id";
}

impl InPath for DeliveryId {
    const NAME: &str = "delivery_id";
}

/// Publishers write it in any form, and may give that to an administrator.
impl InPath for EventId {
    const NAME: &str = "event_id";
    const LENGTH: Option<usize> = None;
}

/// A recovery's id.
impl InPath for Uuid {
    const NAME: &str = "recovery_id";
}

impl<T: InPath> FromRequest for Id<T> {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get(T::NAME).filter(|text| T::LENGTH.is_none_or(|length| text.len() == length));
        future::ready(text.and_then(|text| text.parse().ok()).map(Self).ok_or(ApiError::NotFound))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn is_read<T: InPath>(text: &str) -> bool {
        let request = TestRequest::default().param(T::NAME, text.to_owned()).to_http_request();
        Id::<T>::from_request(&request, &mut Payload::None).into_inner().is_ok()
    }

    #[test]
    fn an_event_is_found_by_any_form_of_its_id_and_what_is_ours_by_one() {
        for (text, is_event, is_ours) in [
            ("0192f0c1-0000-7000-8000-0000000000ab", true, true),
            ("0192F0C1-0000-7000-8000-0000000000AB", true, true),
            ("0192f0c10000700080000000000000ab", true, false),
            ("{0192f0c1-0000-7000-8000-0000000000ab}", true, false),
            ("urn:uuid:0192f0c1-0000-7000-8000-0000000000ab", true, false),
            ("0192f0c1-0000-7000-8000-0000000000", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_read::<EventId>(text), is_read::<DeliveryId>(text)), (is_event, is_ours), "{text}");
        }
    }
}
