#![doc = include_str!("../README.md")]

mod app;
mod deliveries;
mod docs;
mod events;
mod history;
mod http;
mod keys;
mod metrics;
mod middleware;
mod outbox;
mod pages;
mod recoveries;
mod routes;
mod server;
mod sessions;
mod state;
mod stats;
mod webhooks;

pub use app::{App, AppError, REQUEST_CALL_TIMEOUT};
