//! Ids in paths.

use std::str::FromStr;

use crate::problem::ApiError;

/// Parses an id in the API's own form; upper case is tolerated. A malformed id is not found, like an unknown one.
pub(crate) fn id<Id: FromStr>(text: &str) -> Result<Id, ApiError> {
    let id = if text.len() == uuid::fmt::Hyphenated::LENGTH { text.parse().ok() } else { None };
    id.ok_or(ApiError::NotFound)
}
