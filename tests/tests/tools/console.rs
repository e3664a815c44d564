//! The administrators' console: over HTTP, and in a real browser.
mod forms;
mod http;
mod keyboard;
mod meanwhile;
mod pictures;
mod screens;
