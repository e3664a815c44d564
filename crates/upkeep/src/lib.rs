#![doc = include_str!("../README.md")]

mod lead;
mod metrics;
mod rebuild;
mod reconciler;
mod requeue;
mod retention;
mod search;
mod throttle;
mod untried;
mod upkeep;
mod working_time;

pub use metrics::Metrics;
pub use upkeep::Upkeep;
