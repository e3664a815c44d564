//! Who calls: the two back ends of sessions, and how often a session may call.
#![expect(clippy::unwrap_used, reason = "all of this file is tests; clippy sees that of the test functions only")]

mod application;
mod database;
mod introspection;
mod pace;
