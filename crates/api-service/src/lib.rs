#![doc = include_str!("../README.md")]

mod answer;
mod api;
mod app;
mod cross_site;
mod deliveries;
mod docs;
mod event_types;
mod fields;
mod json;
mod metrics;
mod openapi;
mod outbox;
mod page;
mod path;
mod problem;
mod rate_limit;
mod recent;
mod recoveries;
mod registration;
mod relay;
mod request_id;
mod server;
mod session;
mod test_deliveries;
mod violation;
mod webhooks;

pub use app::{App, AppError};

/// The API's OpenAPI 3.1 description as JSON text, with the limits that the settings set.
#[must_use]
pub fn openapi(settings: &service_kit::Settings) -> String {
    docs::text(&openapi::document(&settings.limits))
}
