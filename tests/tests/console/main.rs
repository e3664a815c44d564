//! The administrators' console: over HTTP, and in a real browser.
#![expect(clippy::unwrap_used, reason = "all of this file is tests; clippy sees that of the test functions only")]

mod http;
mod keyboard;
mod pictures;
mod screens;
