#![doc = include_str!("../README.md")]

mod body;
mod causes;
mod census;
mod config;
mod connector;
mod egress;
mod failure;
mod fault;
mod guarded;
mod internal;
mod limited;
mod request;
mod resolver;
mod tls;
mod vetted_tcp;
mod words;

pub use config::{EgressConfig, EgressError};
pub use egress::Egress;
pub use internal::{Internal, InternalAnswer, InternalConfig, InternalError};
pub use limited::Explained;
pub use request::{Answer, Post};
