//! Times: relative ones for people, with the exact one at hand. The script turns exact ones into local time.

use maud::{Markup, html};
use time::{
    Duration, OffsetDateTime, UtcOffset,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

/// How long something takes, in its largest unit.
pub(crate) fn length(duration: Duration) -> String {
    let seconds = duration.whole_seconds().max(0);
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min", seconds / 60),
        3_600..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Milliseconds, or seconds from one second on.
pub(crate) fn milliseconds(milliseconds: u128) -> String {
    match milliseconds {
        0..=999 => format!("{milliseconds} ms"),
        _ => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
    }
}

/// `12 s ago`, or `in 4 min`.
pub(crate) fn relative(moment: OffsetDateTime, now: OffsetDateTime) -> Markup {
    let words = if moment > now {
        format!("in {}", length(moment - now + Duration::milliseconds(999)))
    } else if now - moment < Duration::SECOND {
        "just now".to_owned()
    } else {
        format!("{} ago", length(now - moment))
    };
    shown(moment, &words, Some("relative"))
}

/// Like [`relative`], of a time that should have come: one that has passed is `now`.
pub(crate) fn due(moment: OffsetDateTime, now: OffsetDateTime) -> Markup {
    if moment > now { relative(moment, now) } else { shown(moment, "now", None) }
}

/// The time of day when it is near, else with its date.
pub(crate) fn clock(moment: OffsetDateTime, now: OffsetDateTime) -> Markup {
    let (format, kind): (Format<'_>, _) = if is_near(moment, now) {
        (format_description!("[hour]:[minute] UTC"), "clock")
    } else {
        (format_description!("[day] [month repr:short], [hour]:[minute] UTC"), "date")
    };
    shown(moment, &utc(moment, format), Some(kind))
}

/// The time of day, to the second when it is near, else with its date.
pub(crate) fn moment(moment: OffsetDateTime, now: OffsetDateTime) -> Markup {
    if !is_near(moment, now) {
        return dated(moment);
    }
    shown(moment, &utc(moment, format_description!("[hour]:[minute]:[second]")), Some("second"))
}

fn is_near(moment: OffsetDateTime, now: OffsetDateTime) -> bool {
    (moment - now).abs() < Duration::hours(20)
}

/// A date and a time, to the minute.
pub(crate) fn dated(moment: OffsetDateTime) -> Markup {
    shown(moment, &utc(moment, format_description!("[day] [month repr:short], [hour]:[minute]")), Some("date"))
}

/// An hour of a day.
pub(crate) fn hour(moment: OffsetDateTime) -> Markup {
    shown(moment, &utc(moment, format_description!("[hour]:[minute]")), Some("clock"))
}

/// A day, of this kind: `day` in the browser's zone, `utc` in UTC.
pub(crate) fn day(moment: OffsetDateTime, kind: &str) -> Markup {
    shown(moment, &utc(moment, format_description!("[day padding:none] [month repr:short]")), Some(kind))
}

/// A time in words, which the script replaces by local ones of a kind.
fn shown(moment: OffsetDateTime, words: &str, kind: Option<&str>) -> Markup {
    html! { time datetime=(rfc3339(moment)) title=(exact(moment)) data-time=[kind] { (words) } }
}

/// The exact time, to the millisecond.
pub(crate) fn full(moment: OffsetDateTime) -> Markup {
    html! { time datetime=(rfc3339(moment)) data-time="full" { (exact(moment)) } }
}

/// The exact time in UTC.
pub(crate) fn exact(moment: OffsetDateTime) -> String {
    utc(moment, format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3] UTC"))
}

/// A value for an input of a date and a time, to the second, in UTC.
pub(crate) fn for_input(moment: OffsetDateTime) -> String {
    utc(moment, format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]"))
}

/// A time as the API writes it.
pub(crate) fn from_text(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

/// The zone of the times in fields. The script takes the browser's instead, and names it.
pub(crate) fn zone() -> Markup {
    html! { span.zone { "UTC" } }
}

type Format<'a> = &'a [BorrowedFormatItem<'a>];

fn utc(moment: OffsetDateTime, format: Format<'_>) -> String {
    moment.to_offset(UtcOffset::UTC).format(format).unwrap_or_default()
}

fn rfc3339(moment: OffsetDateTime) -> String {
    moment.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn lengths_have_one_unit() {
        for (seconds, shown) in
            [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_600, "1 h"), (172_800, "2 days")]
        {
            assert_eq!(length(Duration::seconds(seconds)), shown);
        }
        assert_eq!((milliseconds(999), milliseconds(1_250)), ("999 ms".to_owned(), "1.2 s".to_owned()));
    }

    #[test]
    fn times_are_relative_with_the_exact_one_at_hand() {
        let now = datetime!(2026-03-01 12:00 UTC);
        let shown = relative(now - Duration::seconds(12), now).into_string();
        assert!(shown.contains(">12 s ago<") && shown.contains("2026-03-01 11:59:48.000 UTC"), "{shown}");
        assert!(relative(now + Duration::minutes(4), now).into_string().contains(">in 4 min<"));
        assert!(due(now - Duration::SECOND, now).into_string().contains(">now<"));
        assert!(clock(now + Duration::hours(2), now).into_string().contains(">14:00 UTC<"));
        assert!(clock(now + Duration::hours(22), now).into_string().contains(">02 Mar, 10:00 UTC<"));
    }
}
