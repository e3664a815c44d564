//! A business event as an upstream service published it (crates/README.md, events).

use std::{str::FromStr, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{EventId, EventType, TenantId, Timestamp};

const MAX_FAULT_CHARS: usize = 300;

/// A usable event. `data` borrows the bytes of the message, so it passes through unchanged.
#[derive(Debug)]
pub struct Event<'m> {
    /// The publisher's id. An event that is published twice carries the same one.
    pub id: EventId,
    /// Which of the seven types.
    pub event_type: EventType,
    /// The tenant in which it fired.
    pub tenant: TenantId,
    /// When it fired.
    pub timestamp: Timestamp,
    /// The JSON object, byte for byte as it came.
    pub data: &'m RawValue,
}

/// Why a message is not a usable event. [`Rejection::reason`] is from a closed set, for headers and metrics. The
/// `Display` text names the violation, for a person.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Rejection {
    /// Not JSON, or not an object.
    #[error("not a JSON object: {0}")]
    Malformed(String),
    /// Not JSON, and published with a `content_encoding`.
    #[error("content_encoding is {encoding:?}, and only plain JSON is read: {fault}")]
    Encoded {
        /// The property as published.
        encoding: String,
        /// The violation.
        fault: String,
    },
    /// One of the five members is missing, doubled or of the wrong kind.
    #[error("{member}: {fault}")]
    Invalid {
        /// Which member.
        member: &'static str,
        /// The violation.
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
    /// The event fired earlier or later than is accepted.
    #[error("timestamp: {timestamp} is not {period}")]
    OutOfRange {
        /// When the event fired.
        timestamp: Timestamp,
        /// What is accepted.
        period: AcceptedPeriod,
    },
    /// Its processing panicked.
    #[error("its processing panicked: the log of event-ingest shows where")]
    Panicked,
}

/// When an event may have fired to be accepted: as long ago as its body would be kept, and at most a day ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedPeriod {
    earliest: OffsetDateTime,
    latest: OffsetDateTime,
}

/// The time by which the clock of an upstream service may be ahead.
const MAX_CLOCK_LEAD: Duration = Duration::from_secs(24 * 60 * 60);

impl AcceptedPeriod {
    /// The period at `now`, by the database's clock, when bodies are kept for `keep`.
    pub fn at(now: OffsetDateTime, keep: Duration) -> Self {
        let keep = time::Duration::try_from(keep).unwrap_or(time::Duration::MAX);
        Self {
            earliest: now.checked_sub(keep).unwrap_or(OffsetDateTime::UNIX_EPOCH),
            latest: now.checked_add(MAX_CLOCK_LEAD.try_into().unwrap_or_default()).unwrap_or(now),
        }
    }

    /// Whether an event of this timestamp is accepted.
    ///
    /// # Errors
    /// [`Rejection::OutOfRange`].
    pub fn check(self, timestamp: Timestamp) -> Result<(), Rejection> {
        if (self.earliest..=self.latest).contains(&timestamp.as_datetime()) {
            Ok(())
        } else {
            Err(Rejection::OutOfRange { timestamp, period: self })
        }
    }
}

impl std::fmt::Display for AcceptedPeriod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let second = |moment: OffsetDateTime| moment.replace_nanosecond(0).unwrap_or(moment).format(&Rfc3339);
        let (earliest, latest) = (second(self.earliest).unwrap_or_default(), second(self.latest).unwrap_or_default());
        write!(
            f,
            "between {earliest} (retention.keep ago, or retention.bodies if that is shorter) and {latest} (a day \
             ahead), by the database's clock"
        )
    }
}

impl Rejection {
    /// The same rejection of a message with this property `content_encoding`. Names of character sets, which some clients
    /// write there, explain nothing.
    #[must_use]
    pub fn of_encoding(self, encoding: Option<&str>) -> Self {
        let is_plain = |encoding: &str| ["", "identity", "utf-8", "utf8"].contains(&&*encoding.to_ascii_lowercase());
        match (self, encoding) {
            (Self::Malformed(fault), Some(encoding)) if !is_plain(encoding) => {
                Self::Encoded { encoding: brief(encoding), fault }
            }
            (rejection, _) => rejection,
        }
    }

    /// The reason, as a word from a closed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_json",
            Self::Encoded { .. } => "content_encoding",
            Self::Invalid { .. } => "invalid_member",
            Self::TooLarge { .. } => "data_too_large",
            Self::OutOfRange { .. } => "timestamp_out_of_range",
            Self::Panicked => "panicked",
        }
    }
}

/// Some writers begin JSON with it.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

#[derive(Deserialize)]
#[serde(expecting = "an event")]
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
    /// The type of the event that a message holds, usable or not.
    pub fn type_of(message: &'m [u8]) -> Option<EventType> {
        let message = message.strip_prefix(BYTE_ORDER_MARK).unwrap_or(message);
        let Wire { event_type, .. } = serde_json::from_slice(message).ok()?;
        member("event_type", event_type).ok()
    }

    /// Reads a message. `data_limit` is in bytes.
    ///
    /// # Errors
    /// The [`Rejection`] that says what is wrong with it.
    pub fn parse(message: &'m [u8], data_limit: usize) -> Result<Self, Rejection> {
        let message = message.strip_prefix(BYTE_ORDER_MARK).unwrap_or(message);
        let wire: Wire<'m> =
            serde_json::from_slice(message).map_err(|error| Rejection::Malformed(brief(&error.to_string())))?;
        // serde also reads a struct from an array of its fields' values. Only an object is an event.
        if message.trim_ascii_start().first() != Some(&b'{') {
            return Err(Rejection::Malformed("it is an array".to_owned()));
        }
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

fn member<T: FromStr<Err: ToString>>(name: &'static str, raw: Option<&RawValue>) -> Result<T, Rejection> {
    let raw = raw.ok_or_else(|| missing(name))?;
    let text: String = serde_json::from_str(raw.get()).map_err(|_| invalid(name, "not a string"))?;
    text.parse().map_err(|fault: T::Err| invalid(name, &brief(&fault.to_string())))
}

/// Shortens a text for a person, a log and a header. It may quote the bad value, which has no limit of its own.
fn brief(fault: &str) -> String {
    match fault.char_indices().nth(MAX_FAULT_CHARS) {
        Some((end, _)) => format!("{}…", &fault[..end]),
        None => fault.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID_EVENT: &str = r#"{"event_id":"0192f0c1-0000-7000-8000-000000000001","event_type":"quote.closed",
        "tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00.123456Z","data":{"a":1},"more":1e400}"#;

    fn rejection(text: &str) -> Rejection {
        Event::parse(text.as_bytes(), 1000).unwrap_err()
    }

    #[test]
    fn a_good_event_is_read_and_extra_members_are_ignored() {
        let event = Event::parse(VALID_EVENT.as_bytes(), 1000).unwrap();
        assert_eq!(event.event_type, EventType::QuoteClosed);
        assert_eq!(event.data.get(), r#"{"a":1}"#);
    }

    #[test]
    fn an_event_that_cannot_be_used_may_have_a_type() {
        for (message, found) in [
            (VALID_EVENT, Some(EventType::QuoteClosed)),
            (r#"{"event_type":"quote.cancelled","data":7}"#, Some(EventType::QuoteCancelled)),
            (r#"{"event_type":"invoice.paid"}"#, None),
            (r#"{"invoice":1}"#, None),
            ("no JSON", None),
            ("", None),
        ] {
            assert_eq!(Event::type_of(message.as_bytes()), found, "{message}");
        }
    }

    #[test]
    fn a_body_that_is_encoded_is_rejected_for_its_encoding() {
        let of = |encoding| rejection("\u{1f}\u{fffd}\u{8}").of_encoding(encoding);
        let gzip = of(Some("gzip"));
        assert_eq!(gzip.reason(), "content_encoding");
        assert!(gzip.to_string().starts_with("content_encoding is \"gzip\", and only plain JSON is read"), "{gzip}");
        for plain in [None, Some(""), Some("UTF-8"), Some("identity")] {
            assert_eq!(of(plain).reason(), "malformed_json", "{plain:?}");
        }
        let other = rejection(&VALID_EVENT.replace("quote.closed", "quote.open")).of_encoding(Some("gzip"));
        assert_eq!(other.reason(), "invalid_member");
    }

    #[test]
    fn a_byte_order_mark_before_the_json_is_skipped() {
        let marked = ["\u{feff}".as_bytes(), VALID_EVENT.as_bytes()].concat();
        assert_eq!(Event::parse(&marked, 1000).unwrap().data.get(), r#"{"a":1}"#);
        let twice = ["\u{feff}".as_bytes(), &marked].concat();
        assert_eq!(Event::parse(&twice, 1000).unwrap_err().reason(), "malformed_json");
    }

    #[test]
    fn every_fault_is_named() {
        let without = |member: &str| VALID_EVENT.replace(&format!("\"{member}\""), "\"other\"");
        for member in ["event_id", "event_type", "tenant_id", "timestamp", "data"] {
            assert_eq!(rejection(&without(member)).to_string(), format!("{member}: missing"));
        }
        assert_eq!(rejection(&VALID_EVENT.replace(r#"{"a":1}"#, "[1]")).to_string(), "data: not an object");
        assert_eq!(rejection(&VALID_EVENT.replace("\"quote.closed\"", "7")).to_string(), "event_type: not a string");
        assert!(
            rejection(&VALID_EVENT.replace("quote.closed", "quote.reopened")).to_string().contains("quote.reopened")
        );
        assert!(rejection(&VALID_EVENT.replace("5b0e0000", "nobody")).to_string().starts_with("tenant_id: "));
        assert!(rejection(&VALID_EVENT.replace("2026", "1926")).to_string().starts_with("timestamp: "));
        assert_eq!(rejection("{}").reason(), "invalid_member");
    }

    #[test]
    fn a_fault_does_not_quote_without_end() {
        let long = "é".repeat(200_000);
        for text in [VALID_EVENT.replace("quote.closed", &long), format!("\"{long}\"")] {
            let fault = rejection(&text).to_string();
            assert!(fault.contains("éé") && fault.len() < 1000, "{} bytes", fault.len());
        }
    }

    #[test]
    fn what_is_not_a_json_object_is_malformed() {
        for garbage in
            ["", "null", "[]", "7", "\"text\"", "{", "{\"data\":{\"a\":}}", "\u{0}\u{1}", "{}{}", "{}\u{feff}"]
        {
            assert_eq!(rejection(garbage).reason(), "malformed_json", "{garbage:?}");
        }
        let values = r#"["0192f0c1-0000-7000-8000-000000000001","quote.closed","5b0e0000-0000-4000-8000-000000000001",
            "2026-03-01T09:30:00Z",{}]"#;
        assert_eq!(rejection(values).reason(), "malformed_json", "the five values in an array");
        assert!(Event::parse(format!("\n\t {VALID_EVENT}").as_bytes(), 1000).is_ok(), "white space is no harm");
        assert_eq!(Event::parse(b"{\"data\":\"\xff\xfe\"}", 1000).unwrap_err().reason(), "malformed_json");
        let twice = VALID_EVENT.replace("\"more\":1e400", "\"data\":{}");
        assert!(rejection(&twice).to_string().contains("duplicate"));
    }

    #[test]
    fn an_event_fired_within_what_is_kept_and_a_day_ahead_at_the_most() {
        const DAY: time::Duration = time::Duration::DAY;
        let now = time::macros::datetime!(2026-03-31 09:30 UTC);
        let period = AcceptedPeriod::at(now, Duration::from_secs(30 * 24 * 60 * 60));
        let check = |moment: OffsetDateTime| period.check(moment.try_into().unwrap());
        let (second, millisecond) = (time::Duration::SECOND, time::Duration::MILLISECOND);
        for good in [now, now - DAY * 30, now + DAY] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [now - DAY * 30 - millisecond, now + DAY + second, OffsetDateTime::UNIX_EPOCH] {
            let refused = check(bad).unwrap_err();
            assert_eq!(refused.reason(), "timestamp_out_of_range");
            let words = "between 2026-03-01T09:30:00Z (retention.keep ago, or retention.bodies if that is shorter) and \
                         2026-04-01T09:30:00Z (a day ahead)";
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert_eq!(AcceptedPeriod::at(now, Duration::MAX).check("1970-01-01T00:00:00Z".parse().unwrap()), Ok(()));
    }

    #[test]
    fn data_over_the_limit_is_refused() {
        assert!(Event::parse(VALID_EVENT.as_bytes(), 7).is_ok());
        assert_eq!(Event::parse(VALID_EVENT.as_bytes(), 6).unwrap_err(), Rejection::TooLarge { actual: 7, limit: 6 });
    }
}
