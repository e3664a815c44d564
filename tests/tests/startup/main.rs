//! What the real binaries say and do when something is wrong at their start.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod refused;
mod waiting;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
