//! Lanes: the queues of due jobs, with the places and slots for these (crates/README.md, fairness).

pub(crate) mod admission;
pub(crate) mod place;
pub(crate) mod quota;
pub(crate) mod refusal;
mod share;
pub(crate) mod speed;

use broker::Names;
use service_kit::settings::Dispatcher;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LaneKind {
    /// For jobs that need no other lane. Retries come back over it.
    Main,
    /// For jobs in great numbers: of a tenant that floods, or published again in bulk.
    Bulk,
    /// For jobs that were held.
    Slow,
}

impl LaneKind {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Bulk, Self::Slow];

    pub(crate) fn queue(self, names: &Names) -> String {
        match self {
            Self::Main => names.main(),
            Self::Bulk => names.bulk(),
            Self::Slow => names.slow(),
        }
    }
}

/// The number of long places.
const fn long_places(main: u16) -> u16 {
    main.div_ceil(2)
}

/// The maximum of attempts at a time: in slots, in long places and in the slow lane.
pub(crate) fn attempts_at_a_time(settings: &Dispatcher) -> u64 {
    let Dispatcher { max_in_flight: main, slow_in_flight: slow, .. } = *settings;
    [main, long_places(main), slow].map(u64::from).iter().sum()
}

/// The maximum of unacknowledged messages of a lane: those that wait for admission, and attempts in long places and in the
/// slow lane.
pub(crate) fn prefetch(settings: &Dispatcher) -> u16 {
    u16::try_from(attempts_at_a_time(settings)).unwrap_or(u16::MAX)
}
