#![doc = include_str!("../README.md")]

mod alarm;
mod app;
mod aside;
mod attempt;
mod begin;
mod dead;
mod depths;
mod fault;
mod in_flight;
mod intake;
mod lane;
mod metrics;
mod mover;
mod record;
mod shared_ack;
mod shares;
mod stamps;
mod suspects;

pub use app::{App, AppError};
