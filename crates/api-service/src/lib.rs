#![doc = include_str!("../README.md")]

mod answer;
mod app;
mod authentication;
mod brakes;
mod caller;
mod calls;
mod docs;
mod handlers;
mod methods;
mod metrics;
mod openapi;
mod outbox;
mod pages;
mod problem;
mod quota;
mod request;
mod request_id;
mod routes;
mod server;
mod span;
mod state;
mod violation;

pub use app::{App, AppError};

/// The API's OpenAPI 3.1 description as JSON text, with the limits that the settings set.
#[must_use]
pub fn openapi(settings: &service_kit::Settings) -> String {
    docs::text(&openapi::document(&settings.limits))
}
