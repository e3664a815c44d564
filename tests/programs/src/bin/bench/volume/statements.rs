//! The longest statement of the services, from the server's log.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use programs::slow_log::longest;

use crate::environment::Environment;

/// The log's threshold, in seconds: shorter statements are not logged. A longest one of this length means that none was
/// longer.
const LOGGED_SECONDS: f64 = 0.2;

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
        let threshold = format!("{:.0}", LOGGED_SECONDS * 1000.0);
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
        let Some((seconds, statement)) = longest(&String::from_utf8_lossy(&lines), &self.database) else {
            return LOGGED_SECONDS;
        };
        println!("  the longest statement: {seconds:.2} s: {statement}");
        seconds
    }
}
