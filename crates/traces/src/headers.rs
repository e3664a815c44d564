//! The headers that a collector wants, for authentication.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Headers of each request to the collector. Their values are marked as sensitive, so no log shows them.
#[derive(Clone, Debug, Default)]
pub struct CollectorHeaders(pub(crate) HeaderMap);

/// A header that cannot be sent. It does not show any value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadersError {
    /// It is not `name=value`.
    #[error("header {0} is not name=value")]
    NotAPair(usize),
    /// Its name is none.
    #[error("header {0} has a name that no header has")]
    Name(usize),
    /// Its value cannot be in a header.
    #[error("the value of the header {0} has characters that no header carries")]
    Value(HeaderName),
    /// We set it ourselves.
    #[error("the header {0} is set by the service")]
    Ours(HeaderName),
}

/// The headers that each request has anyway.
const RESERVED_HEADERS: [&str; 4] = ["content-type", "content-length", "host", "transfer-encoding"];

impl CollectorHeaders {
    /// Reads `name=value`, comma separated. In a value, a comma and a percent sign are percent-encoded; anything may be.
    ///
    /// # Errors
    /// [`HeadersError`] for the first one that cannot be sent.
    pub fn parse(text: &str) -> Result<Self, HeadersError> {
        let mut headers = HeaderMap::new();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        for (number, entry) in (1..).zip(entries) {
            let (name, value) = entry.split_once('=').ok_or(HeadersError::NotAPair(number))?;
            let name: HeaderName = name.trim().parse().map_err(|_| HeadersError::Name(number))?;
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(HeadersError::Ours(name));
            }
            let value: Vec<u8> = percent_decode_str(value.trim()).collect();
            let mut value = HeaderValue::from_bytes(&value).map_err(|_| HeadersError::Value(name.clone()))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(Self(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written_or_percent_encoded() {
        let read = CollectorHeaders::parse("Authorization=Basic%20aHVudGVyMg==, x-team = web,x-team=a%2Cb,").unwrap();
        let shown = format!("{read:?}");
        let map = read.0;
        assert_eq!(map["authorization"], "Basic aHVudGVyMg==");
        assert_eq!(map.get_all("x-team").iter().collect::<Vec<_>>(), ["web", "a,b"]);
        assert!(!format!("{shown} {map:?}").contains("aHVudGVyMg"));
        assert!(CollectorHeaders::parse("").unwrap().0.is_empty());
    }

    #[test]
    fn what_cannot_be_sent_is_named_without_its_value() {
        for (text, said) in [
            ("a=b,hunter2", "header 2 is not name=value"),
            ("hunter2 x=1", "header 1 has a name that no header has"),
            ("x-key=hunter2%0A", "the value of the header x-key has characters that no header carries"),
            ("Content-Type=hunter2", "the header content-type is set by the service"),
        ] {
            assert_eq!(CollectorHeaders::parse(text).unwrap_err().to_string(), said);
        }
    }
}
