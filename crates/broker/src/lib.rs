#![doc = include_str!("../README.md")]

mod acks;
mod addresses;
mod backoff;
mod broker;
mod confirms;
mod connect;
mod consumer;
mod depth;
mod encrypted;
mod error;
mod examine;
mod greeting;
mod jobs;
mod message;
mod notices;
mod parking;
mod polled_once;
mod prefetch;
mod presence;
mod publisher;
mod sentinel;
mod stats;
mod topology;

pub use backoff::Backoff;
pub use broker::{Broker, BrokerConfig};
pub use consumer::{Attachment, BatchLimit, Closing, Subscription};
pub use error::{BrokerError, PublishError, Unconfirmed};
pub use examine::{Examiner, NodeSeen, Seen};
pub use jobs::JOBS_PER_MESSAGE;
pub use message::{Acker, Outgoing, Received};
pub use parking::Parked;
pub use prefetch::Prefetch;
pub use presence::Presence;
pub use publisher::Publisher;
pub use stats::Stats;
pub use topology::{Exchange, ExchangeKind, Names, Queue, Topology};
