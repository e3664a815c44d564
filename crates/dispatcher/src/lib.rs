#![doc = include_str!("../README.md")]

mod app;
mod attempt;
mod in_flight;
mod intake;
mod metrics;
mod parking;
mod record;

pub use app::{App, AppError};
