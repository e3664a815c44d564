//! Reads long statements in a log of PostgreSQL.

/// The `statement_timeout` of the services, in seconds. A cancelled statement took at least that long.
const CANCELLED_SECONDS: f64 = 20.0;
const SHOWN_CHARS: usize = 160;

/// The longest statement of a database in a log: its seconds, and the text to show.
#[must_use]
pub fn longest(log: &str, database: &str) -> Option<(f64, String)> {
    // The server begins each further line of an entry with a tab.
    let (log, own) = (log.replace("\n\t", "\r"), format!("] {database} "));
    let entries: Vec<_> = log.lines().filter_map(|entry| entry.split_once(&own)).map(|(_, entry)| entry).collect();
    let timed = (0..entries.len()).filter_map(|at| timed(&entries[at..]));
    let (seconds, statement) = timed.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((seconds, shown(statement)))
}

/// Seconds and statement of the first of these entries. The statement of an error is in an entry after it.
fn timed<'l>(entries: &[&'l str]) -> Option<(f64, &'l str)> {
    let (entry, after) = entries.split_first()?;
    if entry.contains("canceling statement due to statement timeout") {
        return Some((CANCELLED_SECONDS, after.iter().find(|entry| entry.starts_with("STATEMENT:")).unwrap_or(entry)));
    }
    let (milliseconds, statement) = entry.split_once("duration: ")?.1.split_once(" ms")?;
    Some((milliseconds.parse::<f64>().ok()? / 1000.0, statement))
}

/// The beginning of a statement, without comments and line ends.
fn shown(statement: &str) -> String {
    let code = statement.split('\r').map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let words: Vec<_> = code.flat_map(str::split_whitespace).collect();
    words.join(" ").chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_several_lines_is_shown_without_its_comments() {
        let log = "2026-03-01 09:30:00.000 UTC [7] ours LOG:  duration: 300.5 ms  execute s1: -- Finds\n\
                   \t-- all.\n\tSELECT 1, -- one\n\t\n\t\t2\n\
                   2026-03-01 09:30:00.100 UTC [8] theirs LOG:  duration: 900.0 ms  statement: SELECT 3\n\
                   2026-03-01 09:30:00.200 UTC [7] ours LOG:  duration: 250.0 ms  statement: SELECT 4\n";
        assert_eq!(longest(log, "ours"), Some((0.3005, "execute s1: SELECT 1, 2".to_owned())));
        assert_eq!(longest(log, "nobodys"), None);
        let cancelled = "2026-03-01 09:30:21.000 UTC [7] ours ERROR:  canceling statement due to statement timeout\n\
                         2026-03-01 09:30:21.000 UTC [7] ours STATEMENT:  -- Waits.\n\tSELECT 5\n";
        let expected = (CANCELLED_SECONDS, "STATEMENT: SELECT 5".to_owned());
        assert_eq!(longest(&[log, cancelled].concat(), "ours"), Some(expected));
    }
}
