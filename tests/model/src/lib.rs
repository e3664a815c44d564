#![doc = include_str!("../README.md")]

mod config;
mod dispatcher;
mod explore;
mod ingest;
mod leader;
mod properties;
mod relay;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod world;

pub use config::{Broken, Budget, Config};
pub use explore::{Explored, Violation, explore};
