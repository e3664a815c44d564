#![doc = include_str!("../README.md")]

mod answer;
mod api;
mod app;
mod cross_site;
mod deliveries;
mod event_types;
mod fault;
mod fields;
mod json;
mod keeper;
mod metrics;
mod outbox;
mod page;
mod path;
mod problem;
mod rate_limit;
mod recent;
mod recoveries;
mod registration;
mod request_id;
mod server;
mod session;
mod trials;
mod webhooks;

pub use app::{App, AppError};
