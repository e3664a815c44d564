//! What the tables of routes of the API and of the pages have in common.

use actix_web::{Route, guard, web};

use crate::problem::{Answer, ApiError};

/// HEAD has the same handlers as GET: the server leaves out the body.
pub(crate) fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// Nothing is here.
pub(crate) async fn nothing() -> Answer {
    Err(ApiError::NotFound)
}
