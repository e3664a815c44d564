//! When an event fired.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use crate::time_text;

/// A time in UTC, from 1970 to the end of 9999. It fits both RFC 3339 and the 48-bit milliseconds of a delivery id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(OffsetDateTime);

impl Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn unix_millis(self) -> u64 {
        u64::try_from(self.0.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
    }

    /// The time, in UTC.
    pub const fn as_datetime(self) -> OffsetDateTime {
        self.0
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|error| refusal(text, &error.to_string()))?;
        // The parser takes any character there.
        match text.as_bytes().get(10) {
            Some(b'T' | b't') => moment.try_into(),
            _ => Err(refusal(text, "date and time are separated by T")),
        }
    }
}

/// Returns what is wrong with a text, and how to write it.
fn refusal(text: &str, fault: &str) -> String {
    let offset = text.get(19..).and_then(|rest| rest.get(rest.rfind(['+', '-'])?..));
    match offset.filter(|offset| !offset.contains(':')) {
        Some(offset) => {
            format!("not an RFC 3339 timestamp: write the offset {offset} with a colon, as in +00:00, or use Z")
        }
        None => format!("not an RFC 3339 timestamp such as 2026-03-01T09:30:00Z: {fault}"),
    }
}

impl TryFrom<OffsetDateTime> for Timestamp {
    type Error = String;

    fn try_from(moment: OffsetDateTime) -> Result<Self, Self::Error> {
        let utc = moment.checked_to_offset(UtcOffset::UTC).filter(|utc| (1970..=9999).contains(&utc.year()));
        utc.map(Self).ok_or_else(|| "outside the years 1970 to 9999".to_owned())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time_text::written(self.0).ok_or(fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_offset_and_precision_is_read_and_utc_of_one_width_is_written() {
        let read = |text: &str| text.parse::<Timestamp>().map(|moment| moment.to_string());
        assert_eq!(read("2026-03-01T09:30:00.123456Z").unwrap(), "2026-03-01T09:30:00.123456Z");
        assert_eq!(read("2026-03-01T09:30:00.120Z").unwrap(), "2026-03-01T09:30:00.120000Z");
        assert_eq!(read("2026-03-01T09:30:00.123456789Z").unwrap(), "2026-03-01T09:30:00.123456Z");
        assert_eq!(read("2026-03-01T11:00:00+01:30").unwrap(), "2026-03-01T09:30:00.000000Z");
        assert_eq!(read("1970-01-01T00:00:00Z").unwrap(), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn what_is_not_a_moment_from_1970_to_9999_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-03-01",
            "2026-03-01T09:30:00",
            "2026-02-30T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:30:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "1772357400",
            "2026-03-01X00:00:00Z",
            "2026-03-01 00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        assert!("2026-03-01t00:00:00z".parse::<Timestamp>().is_ok());
    }

    #[test]
    fn a_refusal_says_how_to_write_an_offset() {
        let said = |text: &str| text.parse::<Timestamp>().unwrap_err();
        for (text, offset) in [("2026-03-01T00:00:00+0000", "+0000"), ("2026-03-01T00:00:00.5-07", "-07")] {
            assert!(
                said(text).contains(&format!("write the offset {offset} with a colon, as in +00:00")),
                "{}",
                said(text)
            );
        }
        assert!(said("2026-03-01X00:00:00Z").contains("2026-03-01T09:30:00Z"), "an example");
        assert!(said("2026-03-01T00:00:00").contains("2026-03-01T09:30:00Z"));
    }
}
