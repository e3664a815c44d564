//! A webhook's own headers: an administrator sets them, and each delivery carries them. A value may be a credential of the
//! receiver, so values are secrets.

use std::fmt;

use zeroize::Zeroizing;

/// The maximum number of headers of a webhook.
pub const MAX_HEADERS: usize = 16;
/// The maximum length of a header's name, in characters.
pub const MAX_NAME_CHARS: usize = 64;
/// The maximum length of a header's value, in characters.
pub const MAX_VALUE_CHARS: usize = 1024;
/// The maximum length of all values of a webhook together, in characters.
pub const MAX_VALUES_CHARS: usize = 4096;

/// The names, in lower case, that no webhook may set: headers of the connection, or of the service.
const RESERVED_NAMES: [&str; 14] = [
    "connection",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];
/// The beginnings of further reserved names.
const RESERVED_PREFIXES: [&str; 6] = ["accept", "content-", "proxy-", "webhook-", "x-forwarded-", "x-service-"];

/// The violation of a header, as the end of a sentence that begins with the header. No value is in it.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeaderFault {
    /// The name is empty, or has a character that no name of HTTP has.
    #[error("is not the name of a header: use letters, digits and hyphens")]
    InvalidName,
    /// The name is longer than [`MAX_NAME_CHARS`].
    #[error("must have a name of at most {MAX_NAME_CHARS} characters")]
    LongName,
    /// The name is [reserved](is_reserved).
    #[error("cannot be set: the header belongs to the service or to the connection")]
    Reserved,
    /// Another header has this name, perhaps in another case.
    #[error("is given more than once: upper and lower case make no difference")]
    Repeated,
    /// The value is empty.
    #[error("must have a value")]
    NoValue,
    /// The value is longer than [`MAX_VALUE_CHARS`].
    #[error("must have a value of at most {MAX_VALUE_CHARS} characters")]
    LongValue,
    /// The value has other characters than visible ASCII and spaces, or begins or ends with a space.
    #[error("must have a value of visible ASCII characters, with spaces only between them")]
    InvalidValue,
    /// There are more than [`MAX_HEADERS`].
    #[error("must be at most {MAX_HEADERS}")]
    TooMany,
    /// The values together are longer than [`MAX_VALUES_CHARS`].
    #[error("must have values of at most {MAX_VALUES_CHARS} characters together")]
    LongValues,
}

impl HeaderFault {
    /// A stable code, for the API.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidName => "invalid_header_name",
            Self::Reserved => "reserved_header",
            Self::Repeated => "repeated_header",
            Self::NoValue => "blank",
            Self::InvalidValue => "invalid_header_value",
            Self::LongName | Self::LongValue | Self::LongValues => "too_long",
            Self::TooMany => "too_many_headers",
        }
    }
}

/// Returns whether a header belongs to the service or to the connection, so that no webhook may set it. Many receivers see no
/// difference between `_` and `-` in a name.
pub fn is_reserved(name: &str) -> bool {
    let name = &*name.replace('_', "-");
    let begins = |prefix: &str| name.get(..prefix.len()).is_some_and(|text| text.eq_ignore_ascii_case(prefix));
    RESERVED_NAMES.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
        || RESERVED_PREFIXES.into_iter().any(begins)
}

/// A webhook's own headers. Wiped from memory when dropped, and not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReceiverHeaders {
    /// A line `name: value` for each header, in the order of their names.
    text: Zeroizing<String>,
}

impl ReceiverHeaders {
    /// Reads what [`text`](Self::text) has returned.
    pub fn from_text(text: String) -> Self {
        Self { text: Zeroizing::new(text) }
    }

    /// The headers as text, for sealing.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once(": "))
    }

    /// The names, as they were written.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the headers after a change.
    ///
    /// # Errors
    /// [`HeaderFault::TooMany`] or [`HeaderFault::LongValues`].
    pub fn changed(&self, change: &HeaderChange) -> Result<Self, HeaderFault> {
        let set = change.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?.as_str())));
        let mut all: Vec<_> = self.iter().filter(|(name, _)| !change.names_header(name)).chain(set).collect();
        all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
        if all.len() > MAX_HEADERS {
            return Err(HeaderFault::TooMany);
        }
        if all.iter().map(|(_, value)| value.len()).sum::<usize>() > MAX_VALUES_CHARS {
            return Err(HeaderFault::LongValues);
        }
        // A string that grows leaves copies of the values behind, so all of it is reserved first.
        let mut text = String::with_capacity(all.iter().map(|(name, value)| name.len() + value.len() + 3).sum());
        for (name, value) in all {
            for part in [name, ": ", value, "\n"] {
                text.push_str(part);
            }
        }
        Ok(Self::from_text(text))
    }
}

impl fmt::Debug for ReceiverHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// A change of a webhook's own headers: a value for each header that is set, none for one that is removed. Not shown by `Debug`.
#[derive(Default)]
pub struct HeaderChange(Vec<(String, Option<Zeroizing<String>>)>);

impl HeaderChange {
    /// Adds a header that is set, or removed if there is no value.
    ///
    /// # Errors
    /// The [`HeaderFault`].
    pub fn add(&mut self, name: &str, value: Option<&str>) -> Result<(), HeaderFault> {
        let is_of_names = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_of_names) {
            return Err(HeaderFault::InvalidName);
        }
        if name.len() > MAX_NAME_CHARS {
            return Err(HeaderFault::LongName);
        }
        if is_reserved(name) {
            return Err(HeaderFault::Reserved);
        }
        if self.names_header(name) {
            return Err(HeaderFault::Repeated);
        }
        if let Some(value) = value {
            check_value(value)?;
        }
        self.0.push((name.to_owned(), value.map(|value| Zeroizing::new(value.to_owned()))));
        Ok(())
    }

    /// Returns true if nothing is set and nothing removed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a header is set or removed.
    pub fn names_header(&self, name: &str) -> bool {
        self.0.iter().any(|(named, _)| named.eq_ignore_ascii_case(name))
    }

    /// The names of the headers that are set.
    pub fn set(&self) -> Vec<&str> {
        self.0.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str()).collect()
    }
}

impl fmt::Debug for HeaderChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

fn check_value(value: &str) -> Result<(), HeaderFault> {
    if value.is_empty() {
        return Err(HeaderFault::NoValue);
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) || value.trim() != value {
        return Err(HeaderFault::InvalidValue);
    }
    if value.len() > MAX_VALUE_CHARS {
        return Err(HeaderFault::LongValue);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(members: &[(&str, Option<&str>)]) -> HeaderChange {
        let mut change = HeaderChange::default();
        for (name, value) in members {
            change.add(name, *value).unwrap();
        }
        change
    }

    fn fault(name: &str, value: &str) -> Option<HeaderFault> {
        HeaderChange::default().add(name, Some(value)).err()
    }

    #[test]
    fn headers_of_the_service_and_of_the_connection_are_reserved() {
        for reserved in [
            "X-Service-Signature",
            "X_Service_Event",
            "x-service-new",
            "webhook-id",
            "Webhook-Signature",
            "Host",
            "Date",
            "Via",
            "Content-Type",
            "Content-Length",
            "Transfer-Encoding",
            "TE",
            "Trailer",
            "Expect",
            "Connection",
            "Keep-Alive",
            "HTTP2-Settings",
            "Upgrade",
            "Proxy-Authorization",
            "Forwarded",
            "X-Forwarded-For",
            "Cookie",
            "User-Agent",
            "Accept",
            "Accept-Encoding",
        ] {
            for name in [reserved.to_owned(), reserved.to_lowercase(), reserved.to_uppercase()] {
                assert_eq!(fault(&name, "a"), Some(HeaderFault::Reserved), "{name}");
            }
            assert_eq!(HeaderChange::default().add(reserved, None), Err(HeaderFault::Reserved), "{reserved}");
        }
        for own in ["Authorization", "X-Api-Key", "X-Service", "Webhook", "Hosts", "X-Webhook-Id", "Content", "x"] {
            assert_eq!(fault(own, "a"), None, "{own}");
        }
    }

    #[test]
    fn names_and_values_are_what_http_can_carry() {
        for (name, value, expected) in [
            ("", "a", Some(HeaderFault::InvalidName)),
            ("a b", "a", Some(HeaderFault::InvalidName)),
            ("a:", "a", Some(HeaderFault::InvalidName)),
            (":path", "a", Some(HeaderFault::InvalidName)),
            ("\u{e9}", "a", Some(HeaderFault::InvalidName)),
            ("a\nb", "a", Some(HeaderFault::InvalidName)),
            (&"n".repeat(65), "a", Some(HeaderFault::LongName)),
            (&"n".repeat(64), "a", None),
            ("a", "", Some(HeaderFault::NoValue)),
            ("a", " ", Some(HeaderFault::InvalidValue)),
            ("a", " a", Some(HeaderFault::InvalidValue)),
            ("a", "a ", Some(HeaderFault::InvalidValue)),
            ("a", "a\tb", Some(HeaderFault::InvalidValue)),
            ("a", "a\r\nb: c", Some(HeaderFault::InvalidValue)),
            ("a", "\u{7f}", Some(HeaderFault::InvalidValue)),
            ("a", "\u{e9}", Some(HeaderFault::InvalidValue)),
            ("a", &"v".repeat(1025), Some(HeaderFault::LongValue)),
            ("a", &"v".repeat(1024), None),
            ("a", "Bearer  a: \"b\" ~!", None),
        ] {
            assert_eq!(fault(name, value), expected, "{name:?} {value:?}");
        }
        let mut twice = change(&[("X-A", Some("1"))]);
        assert_eq!(twice.add("x-a", Some("1")), Err(HeaderFault::Repeated));
        assert_eq!(twice.add("x-A", None), Err(HeaderFault::Repeated));
    }

    #[test]
    fn a_change_sets_replaces_and_removes_whatever_the_case_of_a_name() {
        let none = ReceiverHeaders::default();
        let two = none.changed(&change(&[("X-B", Some("b: 1")), ("authorization", Some("Bearer a"))])).unwrap();
        assert_eq!(two.iter().collect::<Vec<_>>(), [("authorization", "Bearer a"), ("X-B", "b: 1")]);
        let replaced = two.changed(&change(&[("Authorization", Some("Basic b")), ("X-Gone", None)])).unwrap();
        assert_eq!(replaced.iter().collect::<Vec<_>>(), [("Authorization", "Basic b"), ("X-B", "b: 1")]);
        let removed = replaced.changed(&change(&[("x-b", None), ("AUTHORIZATION", None)])).unwrap();
        assert!(removed.is_empty() && removed == none);
        assert_eq!(change(&[("X-B", None), ("X-A", Some("a"))]).set(), ["X-A"]);
    }

    #[test]
    fn number_and_length_of_all_are_limited() {
        let many = |count: usize, chars: usize| {
            let mut change = HeaderChange::default();
            (0..count).for_each(|n| change.add(&format!("X-{n}"), Some(&"v".repeat(chars))).unwrap());
            change
        };
        let full = ReceiverHeaders::default().changed(&many(16, 256)).unwrap();
        assert_eq!(full.names().len(), 16);
        let changed = |members: &[(&str, Option<&str>)]| full.changed(&change(members)).map(|_| ());
        assert_eq!(changed(&[("X-16", Some("v"))]), Err(HeaderFault::TooMany));
        assert_eq!(changed(&[("X-15", None), ("X-16", Some("v"))]), Ok(()));
        assert_eq!(changed(&[("x-15", Some(&"v".repeat(257)))]), Err(HeaderFault::LongValues));
        assert_eq!(ReceiverHeaders::default().changed(&many(5, 1024)).map(|_| ()), Err(HeaderFault::LongValues));
    }

    #[test]
    fn debug_output_shows_no_value() {
        let change = change(&[("X-A", Some("hidden"))]);
        assert_eq!(format!("{change:?}"), "[\"X-A\"]");
        assert_eq!(format!("{:?}", ReceiverHeaders::default().changed(&change).unwrap()), "[\"X-A\"]");
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_set(
            name in "[a-z!#$%&'*+.^_`|~-]{1,64}", value in "[!-~]([ -~]{0,20}[!-~])?"
        ) {
            prop_assume!(!is_reserved(&name));
            let headers = ReceiverHeaders::default().changed(&change(&[(&name, Some(&value))])).unwrap();
            let read = ReceiverHeaders::from_text(headers.text().to_owned());
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), [(name.as_str(), value.as_str())]);
        }
    }
}
