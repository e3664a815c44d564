#![doc = include_str!("../README.md")]

mod allowed_tcp;
mod body;
mod builder;
mod causes;
mod charset;
mod config;
mod connect_error;
mod connection_counts;
mod connector;
mod connects;
mod egress;
mod exchange;
mod failure;
mod failure_messages;
mod guarded;
mod host;
mod internal;
mod limited;
mod no_descriptor;
mod request;
mod resolver;
mod status_line;

pub use config::{EgressConfig, EgressError};
pub use egress::Egress;
pub use internal::{Internal, InternalAnswer, InternalConfig, InternalError};
pub use limited::Explained;
pub use no_descriptor::NoDescriptor;
pub use request::Post;
