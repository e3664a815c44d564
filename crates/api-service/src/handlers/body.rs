//! The JSON body of a request, as an extractor.

use std::pin::Pin;

use actix_web::{Error, FromRequest, HttpRequest, dev, web};

use crate::{
    problem::ApiError,
    request::{Checked, Fields, FromBody, Members, Need, members},
    state::{Rules, State},
};

/// A body that was read and checked. It is a handler's last argument: a request with a malformed id is answered unread.
pub(crate) struct Body<T>(pub(super) T);

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
            let members = members(request.headers(), payload, state.body_limit, T::NEED).await?;
            Ok(Self(T::read(members, &state.rules).map_err(ApiError::Fields)?))
        })
    }
}
