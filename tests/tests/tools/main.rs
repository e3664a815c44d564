//! Tests that need other programs: languages, generators of clients, a browser, Prometheus, PgBouncer.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod alarms;
mod clients;
mod console;
mod metrics_page;
mod pooler;
mod provision;
mod publishers;
mod receivers;
mod samples;
mod telemetry;
