//! The administrators' console: over HTTP, and in a real browser.
#![expect(clippy::unwrap_used, reason = "all of this file is tests; clippy sees that of the test functions only")]

mod forms;
mod http;
mod keyboard;
mod meanwhile;
mod pictures;
mod screens;
