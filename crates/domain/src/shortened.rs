//! Shortens texts that somebody outside can make long.

use std::fmt::{self, Write};

/// At most `most` characters of a text. The last one is an ellipsis if there were more. The rest is never made.
pub fn shortened(text: impl fmt::Display, most: usize) -> String {
    let mut limited = Limited { text: String::new(), left: most };
    if write!(limited, "{text}").is_err() {
        limited.text.pop();
        limited.text.push('…');
    }
    limited.text
}

struct Limited {
    text: String,
    left: usize,
}

impl Write for Limited {
    /// Fails at the limit, which ends the writing.
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_text_over_the_limit_ends_with_an_ellipsis_within_it() {
        for (text, short) in [("", ""), ("abc", "abc"), ("äöüß", "äöüß"), ("abcde", "abc…"), ("äöüßé", "äöü…")]
        {
            assert_eq!(shortened(text, 4), short, "{text}");
        }
    }

    #[test]
    fn the_rest_of_a_long_text_is_never_made() {
        struct Long<'a>(&'a Cell<u32>);
        impl fmt::Display for Long<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for part in 1..=1000 {
                    self.0.set(part);
                    f.write_str("ab")?;
                }
                Ok(())
            }
        }
        let made = Cell::new(0);
        assert_eq!(shortened(Long(&made), 5), "abab…");
        assert_eq!(made.get(), 3, "parts of two characters");
    }
}
