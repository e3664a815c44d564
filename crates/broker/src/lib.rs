#![doc = include_str!("../README.md")]

mod acks;
mod addresses;
mod backoff;
mod broker;
mod confirms;
mod connect;
mod consumer;
mod depth;
mod dial;
mod early_ends;
mod error;
mod essential;
mod examine;
mod jobs;
mod message;
mod parking;
mod polled_once;
mod prefetch;
mod presence;
mod publisher;
mod repair;
mod stats;
mod topology;

pub use backoff::Backoff;
pub use broker::{Broker, BrokerConfig};
pub use consumer::{Attachment, BatchLimit, Closing, Subscription};
pub use depth::QueueDepth;
pub use error::{BrokerError, PublishError, Unconfirmed};
pub use essential::{EssentialTasks, TaskPanicked, Watched};
pub use examine::{Examiner, NodeSeen, Seen};
pub use message::{Acker, Outgoing, Received};
pub use parking::{Moved, Parked, Reading};
pub use prefetch::Prefetch;
pub use publisher::Publisher;
pub use stats::Stats;
pub use topology::{Exchange, Names, Queue, Topology};
