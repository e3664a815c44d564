//! When an event fired.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

/// A time in UTC, from 1970 to the end of 9999. It fits both RFC 3339 and the 48-bit milliseconds of a delivery id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(OffsetDateTime);

impl Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down.
    #[must_use]
    pub fn unix_millis(self) -> u64 {
        u64::try_from(self.0.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
    }

    /// The time, in UTC.
    #[must_use]
    pub const fn as_datetime(self) -> OffsetDateTime {
        self.0
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment =
            OffsetDateTime::parse(text, &Rfc3339).map_err(|error| format!("not an RFC 3339 timestamp: {error}"))?;
        moment.try_into()
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
        f.write_str(&self.0.format(&Rfc3339).map_err(|_| fmt::Error)?)
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
    fn any_offset_is_read_and_utc_is_written() {
        let read = |text: &str| text.parse::<Timestamp>().map(|moment| moment.to_string());
        assert_eq!(read("2026-03-01T09:30:00.123456Z").unwrap(), "2026-03-01T09:30:00.123456Z");
        assert_eq!(read("2026-03-01T11:00:00+01:30").unwrap(), "2026-03-01T09:30:00Z");
        assert_eq!(read("1970-01-01T00:00:00Z").unwrap(), "1970-01-01T00:00:00Z");
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
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
