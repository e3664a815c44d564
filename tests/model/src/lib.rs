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

/// The words in which the steps of each actor are written.
mod prelude {
    pub(crate) use domain::{DeliveryState, HoldReason, Progress, WebhookState};

    pub(crate) use crate::{
        config::{Broken, Config, May},
        state::{
            Bag, DELIVERIES, Job, Lease, Message, Messages, NOW, Row, State, at, first_job, later, minutes, small, tick,
        },
        step::{Answer, Step, Steps},
    };
}

pub use config::{Broken, Config, LARGE_CONFIGS, May, SMALL_CONFIGS};
pub use explore::{Violation, explore};
