//! Times as texts: RFC 3339 in UTC, always with six digits of the second's fraction.
//!
//! All have one width, as strict parsers accept one only. Otherwise one time in ten lacks its last digit, and breaks
//! them. Finer digits are cut: rounding could move a time out of the millisecond that is in its delivery's id.
//!
//! A member that is a time has `#[serde(with = "time_text")]`.

use serde::{Serializer, ser::Error};
use time::{OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description};

const TIME_FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// Writes a time. Returns none if its year in UTC cannot be written.
pub fn written(moment: OffsetDateTime) -> Option<String> {
    moment.checked_to_offset(UtcOffset::UTC)?.format(TIME_FORMAT).ok()
}

/// Serializes a time.
///
/// # Errors
/// Those of the serializer, and one if the time's year in UTC cannot be written.
pub fn serialize<S: Serializer>(moment: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    let text = written(*moment).ok_or_else(|| S::Error::custom("the time's year cannot be written"))?;
    serializer.serialize_str(&text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;
    use time::{
        format_description::well_known::Rfc3339,
        macros::{datetime, offset},
    };

    use super::*;

    #[test]
    fn every_time_has_six_digits_of_a_fraction_and_finer_ones_are_cut() {
        for (moment, expected) in [
            (datetime!(2026-03-01 09:30:00 UTC), "2026-03-01T09:30:00.000000Z"),
            (datetime!(2026-03-01 09:30:00.12 UTC), "2026-03-01T09:30:00.120000Z"),
            (datetime!(2026-03-01 09:30:00.123456 UTC), "2026-03-01T09:30:00.123456Z"),
            (datetime!(2026-03-01 09:30:00.123456789 UTC), "2026-03-01T09:30:00.123456Z"),
            (datetime!(2026-03-01 09:30:59.999999999 UTC), "2026-03-01T09:30:59.999999Z"),
            (datetime!(2026-03-01 09:30:00.000000001 UTC), "2026-03-01T09:30:00.000000Z"),
            (datetime!(2026-01-01 00:30:00.5 +14:00), "2025-12-31T10:30:00.500000Z"),
            (datetime!(1970-01-01 00:00:00 UTC), "1970-01-01T00:00:00.000000Z"),
            (datetime!(9999-12-31 23:59:59.999999999 UTC), "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(written(moment).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_member_is_written_the_same_way() {
        #[derive(Serialize)]
        struct Times {
            #[serde(with = "super")]
            at: OffsetDateTime,
        }
        let at = datetime!(2026-03-01 09:30 UTC);
        assert_eq!(serde_json::to_string(&Times { at }).unwrap(), r#"{"at":"2026-03-01T09:30:00.000000Z"}"#);
        let beyond = datetime!(9999-12-31 23:59 UTC).replace_offset(offset!(-1));
        assert!(serde_json::to_string(&Times { at: beyond }).is_err());
    }

    proptest! {
        #[test]
        fn any_time_is_read_back_to_the_microsecond(nanos in 0_i128..253_402_300_800_000_000_000) {
            let text = written(OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap()).unwrap();
            prop_assert_eq!(text.len(), 27);
            let read = OffsetDateTime::parse(&text, &Rfc3339).unwrap();
            prop_assert_eq!(read.unix_timestamp_nanos(), nanos / 1000 * 1000);
        }
    }
}
