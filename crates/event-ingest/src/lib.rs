#![doc = include_str!("../README.md")]

mod acks;
mod app;
mod flood;
mod high_load;
mod intake;
mod metrics;
mod moments;
mod plan;
mod turns;

pub use app::App;
