//! The reasons for which the brake is on, and the brake's metrics.

use prometheus_client::registry::Registry;
use service_kit::metrics::{Counters, Gauges, Register, from_zero};
use strum::IntoEnumIterator;

/// The reason for which the brake is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Reason {
    /// No receiver can be reached.
    NoAnswer,
    /// This machine's clock and the database's differ by more than the brake tolerates.
    Clock,
    /// An operator has set the brake.
    Operator,
}

impl Reason {
    /// The reasons that a dispatcher finds by itself: the ledger gets the first of them.
    pub(crate) const FOUND_BY_PROCESS: [Self; 2] = [Self::Clock, Self::NoAnswer];
}

/// The gauges of the reasons, and the counter of probes.
#[derive(Clone)]
pub(crate) struct Brakes {
    on: Gauges,
    probes: Counters,
}

impl Brakes {
    pub(crate) fn shown(registry: &mut Registry) -> Self {
        let on = registry.shown(
            "webhooks_brake",
            "1 while this process accepts no jobs, by why: no answer, clocks that differ, an operator",
            Gauges::default(),
        );
        let probes = registry.shown(
            "webhooks_brake_probes",
            "Tries to reach any receiver, before and while the brake is on, by whether one was reached",
            from_zero("reached", ["true", "false"]),
        );
        let brakes = Self { on, probes };
        Reason::iter().for_each(|reason| brakes.set(reason, false));
        brakes
    }

    pub(crate) fn set(&self, reason: Reason, is_on: bool) {
        self.on.get_or_create_owned(&[("reason", reason.into())]).set(is_on.into());
    }

    pub(super) fn count_probe(&self, reached: bool) {
        self.probes.get_or_create(&[("reached", if reached { "true" } else { "false" })]).inc();
    }
}
