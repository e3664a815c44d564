#![doc = include_str!("../README.md")]

mod acks;
mod app;
mod intake;
mod maintenance;
mod metrics;
mod moments;
mod plan;
mod rush;
mod turns;

pub use app::{App, AppError};
