#![doc = include_str!("../README.md")]

mod answer;
mod api;
mod app;
mod cross_site;
mod fault;
mod json;
mod metrics;
mod page;
mod problem;
mod registration;
mod request_id;
mod server;
mod session;
mod webhooks;

pub use app::{App, AppError};
