//! The longest statement of the services, from the server's log.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use crate::environment::Environment;

/// The log's threshold, in seconds: shorter statements are not logged. A longest one of this length means that none was
/// longer.
const LOGGED: f64 = 0.2;
/// The `statement_timeout` of the services, in seconds. A cancelled statement took at least that long.
const CANCELLED: f64 = 20.0;
const SHOWN: usize = 160;

/// Watches the database of one instance.
pub(super) struct Statements {
    log: PathBuf,
    database: String,
}

#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Statements {
    /// Makes the server log long statements of sessions that begin from now on. The harness's own session is older.
    pub(super) async fn watch(environment: &Environment<'_>) -> Self {
        let database = environment.system.database_url.rsplit('/').next().expect("the URL names a database").to_owned();
        let threshold = format!("{:.0}", LOGGED * 1000.0);
        environment.sql(&format!("ALTER DATABASE {database} SET log_min_duration_statement = {threshold}")).await;
        Self { log: environment.bench.postgres_log(), database }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(std::fs::metadata(&self.log).map_or(0, |file| file.len()))
    }

    /// The longest statement since a mark, in seconds. Prints it.
    pub(super) fn longest_since(&self, Mark(from): Mark) -> f64 {
        let mut log = File::open(&self.log).expect("the log can be read");
        log.seek(SeekFrom::Start(from)).expect("the log only grows");
        let mut lines = Vec::new();
        log.read_to_end(&mut lines).expect("the log can be read");
        let text = String::from_utf8_lossy(&lines);
        let own = format!("] {} ", self.database);
        let logged = text.lines().filter_map(|line| line.split_once(&own)).filter_map(|(_, line)| timed(line));
        let Some((seconds, statement)) = logged.max_by(|one, other| one.0.total_cmp(&other.0)) else { return LOGGED };
        let statement: String = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        println!("  the longest statement: {seconds:.2} s: {}", statement.chars().take(SHOWN).collect::<String>());
        seconds
    }
}

/// Seconds and text of a log line about a statement.
fn timed(line: &str) -> Option<(f64, &str)> {
    if line.contains("canceling statement due to statement timeout") {
        return Some((CANCELLED, line));
    }
    let (milliseconds, statement) = line.split_once("duration: ")?.1.split_once(" ms")?;
    Some((milliseconds.parse::<f64>().ok()? / 1000.0, statement.trim()))
}
