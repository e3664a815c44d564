//! A business event as an upstream service published it (DESIGN 4.1).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{EventId, EventType, TenantId, Timestamp};

const FAULT_CHARS: usize = 300;

/// A usable event. `data` borrows the message's own bytes, so it passes through unchanged.
#[derive(Debug)]
pub struct Event<'m> {
    /// The publisher's id: the same event published twice carries the same one.
    pub id: EventId,
    /// Which of the seven.
    pub event_type: EventType,
    /// The tenant in which it fired.
    pub tenant: TenantId,
    /// When it fired.
    pub timestamp: Timestamp,
    /// The JSON object, byte for byte as it came.
    pub data: &'m RawValue,
}

/// Why a message is not a usable event. [`Rejection::reason`] is a closed set for headers and metrics; the `Display`
/// text names the fault for a person.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Rejection {
    /// Not JSON, or not an object.
    #[error("not a JSON object: {0}")]
    Malformed(String),
    /// One of the five members is missing, doubled or of the wrong kind.
    #[error("{member}: {fault}")]
    Invalid {
        /// Which member.
        member: &'static str,
        /// What is wrong with it.
        fault: String,
    },
    /// `data` is larger than the limit, in bytes.
    #[error("data: {actual} bytes, the limit is {limit}")]
    TooLarge {
        /// The size of `data` in bytes.
        actual: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Rejection {
    /// The fault as a word from a closed set.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_json",
            Self::Invalid { .. } => "invalid_member",
            Self::TooLarge { .. } => "data_too_large",
        }
    }
}

#[derive(Deserialize)]
struct Wire<'m> {
    #[serde(borrow)]
    event_id: Option<&'m RawValue>,
    #[serde(borrow)]
    event_type: Option<&'m RawValue>,
    #[serde(borrow)]
    tenant_id: Option<&'m RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'m RawValue>,
    #[serde(borrow)]
    data: Option<&'m RawValue>,
}

impl<'m> Event<'m> {
    /// Reads a message.
    ///
    /// # Errors
    /// The [`Rejection`] that says what is wrong with it; `data_limit` is in bytes.
    pub fn parse(message: &'m [u8], data_limit: usize) -> Result<Self, Rejection> {
        let wire: Wire<'m> =
            serde_json::from_slice(message).map_err(|error| Rejection::Malformed(brief(&error.to_string())))?;
        let data = wire.data.ok_or_else(|| missing("data"))?;
        if !data.get().starts_with('{') {
            return Err(invalid("data", "not an object"));
        }
        if data.get().len() > data_limit {
            return Err(Rejection::TooLarge { actual: data.get().len(), limit: data_limit });
        }
        Ok(Self {
            id: member("event_id", wire.event_id)?,
            event_type: member("event_type", wire.event_type)?,
            tenant: member("tenant_id", wire.tenant_id)?,
            timestamp: member("timestamp", wire.timestamp)?,
            data,
        })
    }
}

fn missing(member: &'static str) -> Rejection {
    invalid(member, "missing")
}

fn invalid(member: &'static str, fault: &str) -> Rejection {
    Rejection::Invalid { member, fault: fault.to_owned() }
}

fn member<T>(name: &'static str, raw: Option<&RawValue>) -> Result<T, Rejection>
where
    T: std::str::FromStr,
    T::Err: ToString,
{
    let raw = raw.ok_or_else(|| missing(name))?;
    let text: String = serde_json::from_str(raw.get()).map_err(|_| invalid(name, "not a string"))?;
    text.parse().map_err(|fault: T::Err| invalid(name, &brief(&fault.to_string())))
}

/// A fault may quote what it faults, which has no limit of its own; the text is for a person, a log and a header.
fn brief(fault: &str) -> String {
    match fault.char_indices().nth(FAULT_CHARS) {
        Some((end, _)) => format!("{}…", &fault[..end]),
        None => fault.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"event_id":"0192f0c1-0000-7000-8000-000000000001","event_type":"quote.closed",
        "tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00.123456Z","data":{"a":1},"more":1e400}"#;

    fn rejection(text: &str) -> Rejection {
        Event::parse(text.as_bytes(), 1000).unwrap_err()
    }

    #[test]
    fn a_good_event_is_read_and_extra_members_are_ignored() {
        let event = Event::parse(GOOD.as_bytes(), 1000).unwrap();
        assert_eq!(event.event_type, EventType::QuoteClosed);
        assert_eq!(event.data.get(), r#"{"a":1}"#);
    }

    #[test]
    fn every_fault_is_named() {
        let without = |member: &str| GOOD.replace(&format!("\"{member}\""), "\"other\"");
        for member in ["event_id", "event_type", "tenant_id", "timestamp", "data"] {
            assert_eq!(rejection(&without(member)).to_string(), format!("{member}: missing"));
        }
        assert_eq!(rejection(&GOOD.replace(r#"{"a":1}"#, "[1]")).to_string(), "data: not an object");
        assert_eq!(rejection(&GOOD.replace("\"quote.closed\"", "7")).to_string(), "event_type: not a string");
        assert!(rejection(&GOOD.replace("quote.closed", "quote.reopened")).to_string().contains("quote.reopened"));
        assert!(rejection(&GOOD.replace("5b0e0000", "nobody")).to_string().starts_with("tenant_id: "));
        assert!(rejection(&GOOD.replace("2026", "1926")).to_string().starts_with("timestamp: "));
        assert_eq!(rejection("{}").reason(), "invalid_member");
    }

    #[test]
    fn a_fault_does_not_quote_without_end() {
        let long = "é".repeat(200_000);
        for text in [GOOD.replace("quote.closed", &long), format!("\"{long}\"")] {
            let fault = rejection(&text).to_string();
            assert!(fault.contains("éé") && fault.len() < 1000, "{} bytes", fault.len());
        }
    }

    #[test]
    fn what_is_not_a_json_object_is_malformed() {
        for garbage in ["", "null", "[]", "7", "\"text\"", "{", "{\"data\":{\"a\":}}", "\u{0}\u{1}"] {
            assert_eq!(rejection(garbage).reason(), "malformed_json", "{garbage:?}");
        }
        assert_eq!(Event::parse(b"{\"data\":\"\xff\xfe\"}", 1000).unwrap_err().reason(), "malformed_json");
        let twice = GOOD.replace("\"more\":1e400", "\"data\":{}");
        assert!(rejection(&twice).to_string().contains("duplicate"));
    }

    #[test]
    fn data_over_the_limit_is_refused() {
        assert!(Event::parse(GOOD.as_bytes(), 7).is_ok());
        assert_eq!(Event::parse(GOOD.as_bytes(), 6).unwrap_err(), Rejection::TooLarge { actual: 7, limit: 6 });
    }
}
