//! What a page has to know of its request.

use std::{future, ops::Deref};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use console::Frame;
use time::OffsetDateTime;

use super::form::{FormFields, token};
use crate::http::{ApiError, Caller, list::MAX_QUERY_BYTES};

/// The frame of the page that is answered, and what its query string asks for.
pub(super) struct PageRequest {
    pub(super) frame: Frame,
    query: FormFields,
}

impl Deref for PageRequest {
    type Target = FormFields;

    fn deref(&self) -> &FormFields {
        &self.query
    }
}

impl FromRequest for PageRequest {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let caller = Caller::from_request(request, payload).into_inner();
        if request.query_string().len() > MAX_QUERY_BYTES {
            return future::ready(Err(ApiError::QueryTooLong(MAX_QUERY_BYTES)));
        }
        future::ready(caller.map(|caller| {
            let query = FormFields::parse(request.query_string().as_bytes());
            let (user, token) = (caller.admin.user.clone(), token(request).unwrap_or_default());
            let logs_out = caller.console.login_url.is_none();
            let brake = *caller.brake.borrow();
            let (tenant, now) = (caller.admin.tenant, OffsetDateTime::now_utc());
            let done = query.first("done").parse().ok();
            Self { frame: Frame { tenant, user, token, now, done, logs_out, brake }, query }
        }))
    }
}
