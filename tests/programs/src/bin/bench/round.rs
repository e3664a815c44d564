//! A measured round: a number of deliveries, as fast as possible.

use std::time::Duration;

use crate::usage::Usage;

/// The longest that a round may take.
pub(crate) const ROUND_TIMEOUT: Duration = Duration::from_secs(240);

#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) deliveries: u64,
    /// From the first publish to the last outcome in the ledger. For the bare pipe, to the last arrival.
    pub(crate) seconds: f64,
    /// What is charged: the service's processes and its servers. For the bare pipe, itself and the broker.
    pub(crate) usage: Usage,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
impl Round {
    pub(crate) fn sum(rounds: impl IntoIterator<Item = Self>) -> Self {
        let add = |mut all: Self, more: Self| {
            all.deliveries += more.deliveries;
            all.seconds += more.seconds;
            all.usage.merge(&more.usage);
            all
        };
        rounds.into_iter().reduce(add).expect("there is a round")
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.deliveries as f64 / self.seconds
    }

    /// Microseconds of CPU per delivery.
    pub(crate) fn cpu(&self) -> f64 {
        self.usage.sum() / self.deliveries as f64
    }

    /// Microseconds of CPU per delivery, by process.
    pub(crate) fn cpu_by_process(&self) -> Vec<(&'static str, f64)> {
        self.usage.0.iter().map(|(name, microseconds)| (*name, microseconds / self.deliveries as f64)).collect()
    }
}
