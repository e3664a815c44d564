//! The length limit for texts that receivers, their certificates and their name servers can influence.

use std::{error::Error, fmt};

use domain::{error_chain, shortened};

/// The maximum length of an error's text, in characters: as much as an administrator reads.
pub(crate) const MAX_TEXT_CHARS: usize = 300;

/// The part of a host's name that an error's text quotes, in characters.
pub(crate) const MAX_HOST_CHARS: usize = 128;

/// Writes a text up to the limit. A text that is cut ends in an ellipsis, and the rest of it is never made.
pub(crate) fn limited(text: impl fmt::Display) -> String {
    shortened(text, MAX_TEXT_CHARS)
}

/// A host's name in quotes, cut to [`MAX_HOST_CHARS`] characters.
pub(crate) fn quoted(host: &str) -> String {
    format!("{:?}", shortened(host, MAX_HOST_CHARS))
}

/// An error with its causes, cut to 300 characters: a source that can be kept and logged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Explained(String);

impl Explained {
    pub(crate) fn of(error: &dyn Error) -> Self {
        Self(limited(error_chain(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_character_and_says_so() {
        for (characters, kept) in [
            (0, 0),
            (MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS - 1),
            (MAX_TEXT_CHARS, MAX_TEXT_CHARS),
            (MAX_TEXT_CHARS + 1, MAX_TEXT_CHARS - 1),
        ] {
            let text = limited("é".repeat(characters));
            assert_eq!((text.chars().count().min(kept), text.ends_with('…')), (kept, characters > MAX_TEXT_CHARS));
            assert_eq!(text.trim_end_matches('…'), "é".repeat(kept));
        }
    }

    #[test]
    fn what_lies_beyond_the_limit_is_not_written() {
        struct Endless;

        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("again ")?;
                }
            }
        }

        assert_eq!(limited(Endless).chars().count(), MAX_TEXT_CHARS);
    }

    #[test]
    fn a_quoted_name_is_short_too() {
        assert_eq!(quoted("a.example"), "\"a.example\"");
        assert_eq!(quoted(&"a".repeat(5000)).chars().count(), MAX_HOST_CHARS + 2);
    }
}
