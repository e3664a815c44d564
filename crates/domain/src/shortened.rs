//! Shortens texts that somebody outside can make long.

use std::fmt::{self, Write};

/// At most `most` characters of a text. The last one is an ellipsis if there were more. The rest is never made.
#[must_use]
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
