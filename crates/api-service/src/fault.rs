//! What is wrong with one field or parameter, in words for the administrator who filled it in.

use serde::Serialize;

/// One entry of a problem's `errors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// The member or parameter, with the index for an element of an array; empty for the whole body.
    pub(crate) field: String,
    /// Stable, for programs.
    pub(crate) code: &'static str,
    /// Reads on from the field's name.
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), code, message: message.into() }
    }
}
