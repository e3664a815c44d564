//! Requests and answers of every resource: callers, ids, lists, bodies and errors.

mod body;
mod caller;
mod cursor;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod list;
mod path;
mod preconditions;
pub(crate) mod problem;
pub(crate) mod span;
mod violation;

use actix_web::{Route, guard, web};

pub(crate) use self::{
    body::{Body, FromBody},
    caller::Caller,
    cursor::Cursors,
    fields::{Checked, Fields, Given, Source},
    json::{Members, Need},
    list::{List, Parameters, Query, SearchedList, cut},
    path::Id,
    preconditions::{IdempotencyKey, Precondition, tag},
    problem::{ApiError, HandlerResult},
    span::Trace,
    violation::{MAX_LISTED_VIOLATIONS, Violation},
};

/// Matches GET and HEAD. HEAD has the handlers of GET: the server leaves out the body.
pub(crate) fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// Answers that nothing is here.
pub(crate) async fn nothing() -> HandlerResult {
    Err(ApiError::NotFound)
}
