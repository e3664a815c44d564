//! The header `Retry-After` of an answer, for the failure message. It changes nothing: the schedule is fixed.

use std::fmt;

use httpdate::parse_http_date;
use hyper::header::{HeaderMap, RETRY_AFTER};
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description as format};

const SHOWN: &[BorrowedFormatItem<'_>] = format!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");

/// Longer pauses are not told apart, in seconds: a year.
const LONGEST: u64 = 365 * DAY;
const DAY: u64 = 24 * HOUR;
const HOUR: u64 = 60 * MINUTE;
const MINUTE: u64 = 60;

/// The pause that a receiver asks for. It holds nothing as the receiver wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    /// For this many seconds.
    Seconds(u64),
    /// Until this moment.
    Until(OffsetDateTime),
}

impl RetryAfter {
    /// Reads an answer's header. Returns `None` if there is none, it is invalid, or the pause is over at `now`.
    pub(crate) fn of(headers: &HeaderMap, now: OffsetDateTime) -> Option<Self> {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // More digits than fit are a number all the same.
            let seconds = text.parse().unwrap_or(u64::MAX);
            return (seconds > 0).then_some(Self::Seconds(seconds));
        }
        let moment = OffsetDateTime::from(parse_http_date(text).ok()?);
        (moment > now).then_some(Self::Until(moment))
    }
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Seconds(seconds) if seconds > LONGEST => f.write_str("a pause of more than a year"),
            Self::Seconds(seconds) => {
                let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min")];
                let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
                let (unit, name) = whole.unwrap_or((1, "s"));
                write!(f, "a pause of {} {name}", seconds / unit)
            }
            Self::Until(moment) => {
                write!(f, "a pause until {}", moment.format(SHOWN).map_err(|_| fmt::Error)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-24 10:00 UTC);

    fn said(value: &[u8]) -> Option<String> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_bytes(value).unwrap())]);
        RetryAfter::of(&headers, NOW).map(|asked| asked.to_string())
    }

    #[test]
    fn seconds_are_told_in_their_largest_whole_unit_and_no_more_than_a_year() {
        let more = "a pause of more than a year";
        for (seconds, words) in [
            ("1", "a pause of 1 s"),
            ("90", "a pause of 90 s"),
            ("120", "a pause of 2 min"),
            ("0005400", "a pause of 90 min"),
            ("7200", "a pause of 2 h"),
            ("31536000", "a pause of 365 d"),
            ("31536001", more),
            ("18446744073709551616", more),
            (&"9".repeat(10_000), more),
        ] {
            assert_eq!(said(seconds.as_bytes()).as_deref(), Some(words), "{seconds:.30}");
        }
    }

    #[test]
    fn a_date_to_come_is_told_in_one_form() {
        for form in ["Tue, 24 Nov 2026 10:00:01 GMT", "Tuesday, 24-Nov-26 10:00:01 GMT", "Tue Nov 24 10:00:01 2026"] {
            assert_eq!(said(form.as_bytes()).unwrap(), "a pause until 2026-11-24 10:00:01 UTC", "{form}");
        }
        assert!(said(b"Fri, 31 Dec 9999 23:59:59 GMT").unwrap().ends_with("9999-12-31 23:59:59 UTC"));
    }

    #[test]
    fn what_asks_for_no_pause_is_ignored() {
        for value in [
            "",
            "0",
            "-1",
            "+1",
            "1.5",
            "1 ",
            "1, 2",
            "0x10",
            "soon",
            "Tue, 24 Nov 2026 10:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Tue, 24 Nov 2026 10:00:01 CET",
            "Tue, 24 Nov 2026 10:00:01 GMT<b>",
            "Tue, 31 Nov 2026 10:00:01 GMT",
            "2026-11-24T10:00:01Z",
            "\u{661}\u{662}",
        ] {
            assert_eq!(said(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!((said(b"1\xff"), RetryAfter::of(&HeaderMap::new(), NOW)), (None, None));
    }
}
