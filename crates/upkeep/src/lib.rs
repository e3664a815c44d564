#![doc = include_str!("../README.md")]

mod lost_jobs;
mod metrics;
mod pace;
mod rebuild;
mod reconciler;
mod requeue;
mod retention;
mod upkeep;
mod walk;

pub use metrics::Metrics;
pub use upkeep::Upkeep;
