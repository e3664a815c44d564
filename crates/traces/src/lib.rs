#![doc = include_str!("../README.md")]

mod collector;
mod config;
mod headers;
mod stats;
mod traces;

pub use config::TracesConfig;
pub use egress::EgressError;
pub use headers::{CollectorHeaders, HeadersError};
pub use opentelemetry::{Value, trace::SpanKind as Kind};
pub use traces::{Span, Traces};
