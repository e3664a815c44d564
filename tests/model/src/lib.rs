#![doc = include_str!("../README.md")]

mod config;
mod decisions;
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
    pub(crate) use domain::{DeliveryState, Progress, WebhookState};

    pub(crate) use crate::{
        config::{Broken, Config, May},
        decisions::{HoldReason, JobPlaces, RowDecisions, WebhookDecisions},
        state::{
            Bag, DELIVERIES, Job, Lease, Message, Messages, NOW, Row, State, at, first_job, later, minutes, small, tick,
        },
        step::{Answer, Step, Steps},
    };
}

pub use config::{Broken, Config, LARGE_CONFIGS, May, SMALL_CONFIGS};
pub use decisions::{HoldReason, JobPlaces, RowDecisions, WebhookDecisions};
pub use explore::{Violation, explore};
