#![doc = include_str!("../README.md")]

mod app;
mod intake;
mod maintenance;
mod metrics;
mod moments;
mod plan;
mod rush;

pub use app::{App, AppError};
