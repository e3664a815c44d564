//! What is wrong with one field or parameter, in words for the administrator who filled it in.

use serde::Serialize;

/// How many violations an answer lists. It counts the others.
pub(crate) const LISTED: usize = 20;

/// Characters of a violation's field and of its message.
const LONGEST_FIELD: usize = 100;
const LONGEST_MESSAGE: usize = 500;

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
    /// Cuts what a caller can make long: a name that is not known, or a value that the message quotes.
    pub(crate) fn new(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: cut(field.into(), LONGEST_FIELD), code, message: cut(message.into(), LONGEST_MESSAGE) }
    }
}

/// At most so many characters, the last of them an ellipsis when there were more.
fn cut(mut text: String, most: usize) -> String {
    if text.chars().nth(most).is_some() {
        let end = text.char_indices().nth(most - 1).map_or(0, |(at, _)| at);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_or_value_is_cut_at_a_character() {
        for characters in [1, LONGEST_FIELD, LONGEST_FIELD + 1, 60_000] {
            let fault = Fault::new("é".repeat(characters), "unknown_field", "ü".repeat(characters));
            assert_eq!(fault.field.chars().count(), characters.min(LONGEST_FIELD));
            assert_eq!(fault.field.ends_with('…'), characters > LONGEST_FIELD);
            assert_eq!(fault.message.chars().count(), characters.min(LONGEST_MESSAGE));
        }
    }
}
