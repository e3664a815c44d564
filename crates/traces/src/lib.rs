#![doc = include_str!("../README.md")]

mod config;
mod exporter;
mod headers;
mod otlp;
mod queue;
mod ratio;
mod record;
mod span;
mod spell;
mod stats;
mod traces;

pub use config::{TracesConfig, TracesError};
pub use exporter::Exporter;
pub use headers::{CollectorHeaders, HeadersError};
pub use ratio::SampleRatio;
pub use record::{Kind, Value};
pub use span::Span;
pub use traces::Traces;
