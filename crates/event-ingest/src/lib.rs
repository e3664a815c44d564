#![doc = include_str!("../README.md")]

mod app;
mod intake;
mod maintenance;
mod metrics;
mod plan;

pub use app::{App, AppError};
