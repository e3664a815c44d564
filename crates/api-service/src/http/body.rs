//! The JSON body of a request, as an extractor.

use std::pin::Pin;

use actix_web::{Error, FromRequest, HttpRequest, dev, web};

use super::{
    fields::{Checked, Fields},
    json::{Members, Need, members},
    problem::ApiError,
};
use crate::state::{Rules, State};

/// A value that a call reads from its body.
pub(crate) trait FromBody: Sized + 'static {
    const NEED: Need = Need::Required;
    const MEDIA_TYPES: &[&str] = &["application/json"];

    /// Checks every member and reports all violations together.
    fn read(members: Members, rules: &Rules) -> Checked<Self>;
}

/// A body that was read and checked. Functions have it as their last argument: a request with a malformed id is answered
/// unread.
pub(crate) struct Body<T>(pub(crate) T);

/// A body without members, or none.
impl FromBody for () {
    const NEED: Need = Need::Optional;

    fn read(members: Members, _: &Rules) -> Checked<Self> {
        Fields::check(&members, |_| Some(()))
    }
}

impl<T: FromBody> FromRequest for Body<T> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let parts = <(HttpRequest, web::Data<State>, web::Payload)>::from_request(request, payload);
        Box::pin(async move {
            let (request, state, payload) = parts.await?;
            let members = members(request.headers(), payload, state.body_limit, T::NEED, T::MEDIA_TYPES).await?;
            Ok(Self(T::read(members, &state.rules).map_err(ApiError::Fields)?))
        })
    }
}
