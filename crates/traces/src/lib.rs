#![doc = include_str!("../README.md")]

mod config;
mod exporter;
mod headers;
mod otlp;
mod ratio;
mod record;
mod span;
mod stats;
mod traces;

pub use config::TracesConfig;
pub use egress::EgressError;
pub use exporter::Exporter;
pub use headers::{CollectorHeaders, HeadersError};
pub use ratio::SampleRatio;
pub use record::{Kind, Value};
pub use span::Span;
pub use traces::Traces;
