//! Text that must not be shown.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error};

/// A setting that holds a credential: it has no `Display`, and its `Debug` shows only that it is set.
#[derive(Clone)]
pub struct Sensitive(String);

impl Sensitive {
    /// The credential itself, for the one place that uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl<'de> Deserialize<'de> for Sensitive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(D::Error::custom("must not be empty"));
        }
        Ok(Self(text))
    }
}
