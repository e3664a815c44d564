//! Ids in paths.

use std::str::FromStr;

use crate::problem::ApiError;

/// Only the form that the API itself writes; upper case is tolerated. What is no id is not found, as an unknown one.
pub(crate) fn id<Id: FromStr>(text: &str) -> Result<Id, ApiError> {
    let id = if text.len() == uuid::fmt::Hyphenated::LENGTH { text.parse().ok() } else { None };
    id.ok_or(ApiError::NotFound)
}
