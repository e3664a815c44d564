#![doc = include_str!("../README.md")]

mod app;
mod intake;
mod known;
mod maintenance;
mod metrics;
mod plan;

pub use app::{App, AppError};
