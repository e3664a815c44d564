//! A violation: what is wrong with one field or parameter, in text for the administrator who filled it in.

use std::fmt::Display;

use domain::shortened;
use serde::Serialize;

/// How many violations an answer lists. It only counts the others.
pub(crate) const MAX_LISTED_VIOLATIONS: usize = 20;

/// The most characters of a violation's field, and of its message.
const MAX_FIELD_CHARS: usize = 100;
const MAX_MESSAGE_CHARS: usize = 500;

/// One entry of a problem's `errors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    /// The member or parameter, with the index of an array's element. Empty for the whole body.
    pub(crate) field: String,
    /// Stable, for programs.
    pub(crate) code: &'static str,
    /// Continues a sentence that begins with the field.
    pub(crate) message: String,
}

impl Violation {
    /// Shortens both texts: a caller can make an unknown name or a quoted value long.
    pub(crate) fn new(field: impl Display, code: &'static str, message: impl Display) -> Self {
        Self { field: shortened(field, MAX_FIELD_CHARS), code, message: shortened(message, MAX_MESSAGE_CHARS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_or_value_is_cut_at_a_character() {
        for characters in [1, MAX_FIELD_CHARS, MAX_FIELD_CHARS + 1, 60_000] {
            let violation = Violation::new("é".repeat(characters), "unknown_field", "ü".repeat(characters));
            assert_eq!(violation.field.chars().count(), characters.min(MAX_FIELD_CHARS));
            assert_eq!(violation.field.ends_with('…'), characters > MAX_FIELD_CHARS);
            assert_eq!(violation.message.chars().count(), characters.min(MAX_MESSAGE_CHARS));
        }
    }
}
