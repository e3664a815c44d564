//! A receiver of deliveries over real TLS, for tests, the demonstration and the measurements.
//!
//! It plays an outsider: it verifies signatures with a computation of its own, not with our crate.

mod ca;
#[cfg(test)]
mod client;
mod received;
mod reply;
mod server;
mod shared;
mod verify;

pub use ca::{TestCa, Validity};
pub use received::Received;
pub use reply::{Behaviour, Reply, always, behaviour, fails_then_succeeds};
pub use server::Receiver;
pub use verify::verify;
