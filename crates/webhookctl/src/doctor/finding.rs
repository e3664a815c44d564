//! What a check found.

use serde::Serialize;

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It is right.
    Ok,
    /// It is right, and worth knowing; or it could not be looked at.
    Note,
    /// It needs attention, and nothing fails yet.
    Warning,
    /// It is wrong.
    Error,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The check, which stays the same for ever: its area, a dot and what it is about.
    pub(super) id: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
    /// The way to fix it.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(id: &'static str, text: impl Into<String>) -> Self {
        Self { id, level: Level::Ok, text: text.into(), remedy: None }
    }

    pub(super) fn note(id: &'static str, text: impl Into<String>) -> Self {
        Self { id, level: Level::Note, text: text.into(), remedy: None }
    }

    pub(super) fn warning(id: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id, level: Level::Warning, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn error(id: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id, level: Level::Error, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn area(&self) -> &'static str {
        self.id.split('.').next().unwrap_or(self.id)
    }
}

/// `1 queue`, `2 queues`.
pub(super) fn many(count: impl TryInto<i64>, noun: &str) -> String {
    match count.try_into().unwrap_or(i64::MAX) {
        1 => format!("1 {noun}"),
        count => format!("{} {noun}s", grouped(count)),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}{}", if number < 0 { "-" } else { "" }, groups.join(","))
}

/// A time as people say it, in its largest units.
pub(super) fn lasting(time: time::Duration) -> String {
    let seconds = time.whole_seconds();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_written_for_people() {
        assert_eq!([0, 999, 1_000, -1_234_567].map(grouped), ["0", "999", "1,000", "-1,234,567"]);
        assert_eq!((many(1, "queue"), many(2_000, "queue")), ("1 queue".to_owned(), "2,000 queues".to_owned()));
        let times = [5, 119, 120, 7_200, 172_800].map(time::Duration::seconds).map(lasting);
        assert_eq!(times, ["5 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
