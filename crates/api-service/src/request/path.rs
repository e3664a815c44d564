//! Ids in paths.

use std::{future, str::FromStr};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use domain::{DeliveryId, EventId, WebhookId};
use uuid::{Uuid, fmt::Hyphenated};

use crate::problem::ApiError;

/// An id in the path, in the API's own form; upper case is tolerated. A malformed id is not found, like an unknown one.
/// A handler that takes a `Result` of it judges the id after something else.
pub(crate) struct Id<T>(pub(crate) T);

/// What has an id in paths.
pub(crate) trait InPath: FromStr {
    /// The id's name in the routes.
    const NAME: &str;
}

impl InPath for WebhookId {
    const NAME: &str = "id";
}

impl InPath for DeliveryId {
    const NAME: &str = "delivery_id";
}

impl InPath for EventId {
    const NAME: &str = "event_id";
}

/// A recovery's id.
impl InPath for Uuid {
    const NAME: &str = "recovery_id";
}

impl<T: InPath> FromRequest for Id<T> {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().get(T::NAME).filter(|text| text.len() == Hyphenated::LENGTH);
        future::ready(text.and_then(|text| text.parse().ok()).map(Self).ok_or(ApiError::NotFound))
    }
}
