#![doc = include_str!("../README.md")]

mod app;
mod brake;
mod depths;
mod descriptors;
mod fault;
mod lane;
mod line;
mod metrics;

pub use app::App;
