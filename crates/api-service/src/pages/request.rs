//! What a page has to know of its request.

use std::{borrow::Cow, future};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use console::{Done, Frame};
use time::OffsetDateTime;
use url::form_urlencoded;

use super::form::token;
use crate::{caller::Caller, problem::ApiError, request::LONGEST_QUERY};

/// The frame of the page that is answered, and what its query string asks for.
pub(super) struct Asked {
    pub(super) frame: Frame,
    query: String,
}

impl Asked {
    /// The first value of a parameter. Empty when there is none.
    pub(super) fn first(&self, name: &str) -> String {
        self.all(name).next().map(Cow::into_owned).unwrap_or_default().trim().to_owned()
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        form_urlencoded::parse(self.query.as_bytes()).filter(move |(given, _)| given == name).map(|(_, value)| value)
    }
}

impl FromRequest for Asked {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let caller = Caller::from_request(request, payload).into_inner();
        if request.query_string().len() > LONGEST_QUERY {
            return future::ready(Err(ApiError::QueryTooLong(LONGEST_QUERY)));
        }
        future::ready(caller.map(|caller| {
            let query = request.query_string().to_owned();
            let (user, token) = (caller.admin.user.clone(), token(request).unwrap_or_default());
            let logs_out = caller.console.login_url.is_none();
            let brake = *caller.brake.borrow();
            let (tenant, now) = (caller.admin.tenant, OffsetDateTime::now_utc());
            let frame = Frame { tenant, user, token, now, done: None, logs_out, brake };
            let mut asked = Self { frame, query };
            asked.frame.done = Done::read(&asked.first("done"));
            asked
        }))
    }
}

/// The time in an input of a date and a time, which is UTC, as the API's calls write it.
pub(super) fn moment(input: &str) -> String {
    match input.len() {
        0 => String::new(),
        // Browsers leave out seconds that are zero.
        16 => format!("{input}:00Z"),
        _ => format!("{input}Z"),
    }
}
