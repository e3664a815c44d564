#![doc = include_str!("../README.md")]

mod ack_batch;
mod app;
mod fault;
mod flood;
mod intake;
mod metrics;
mod plan;
mod spans;
mod waiting_events;

pub use app::App;
