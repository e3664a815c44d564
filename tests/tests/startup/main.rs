//! What the real binaries say and do when something is wrong at their start.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod encrypted;
mod refused;
mod tls_servers;
mod unencrypted;
mod waiting;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
