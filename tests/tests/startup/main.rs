//! What the processes say and do at their start when something is wrong: with the real binaries.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod refused;
mod waiting;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
