#![doc = include_str!("../README.md")]

mod app;
mod fault;
mod flood;
mod high_load;
mod intake;
mod metrics;
mod plan;
mod spans;
mod turns;
mod unknown_keys;
mod waiting_events;

pub use app::App;
