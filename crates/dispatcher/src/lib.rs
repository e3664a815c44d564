#![doc = include_str!("../README.md")]

mod app;
mod attempt;
mod brake;
mod depths;
mod descriptors;
mod end;
mod fault;
mod holder;
mod in_flight;
mod intake;
mod lane;
mod line;
mod look_up;
mod metrics;
mod pace;
mod pipeline;
mod reason;
mod record;
mod refusal;
mod room;
mod settle;
mod shared;
mod shared_ack;
mod shares;
mod spans;
mod suspects;

pub use app::App;
