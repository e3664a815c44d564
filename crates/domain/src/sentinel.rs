//! The broker's sentinel, a queue that is lost only with the broker's disk (crates/README.md, queues): what its nodes'
//! answers mean.

/// What the broker's nodes say of a queue that should exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Presence {
    /// A node has it.
    Exists,
    /// No node that answers has it, and too few answer to know about the others.
    #[default]
    Unknown,
    /// No node has it, of more than half of them. A quorum queue needs more than half of its members, so it is lost.
    Gone,
}

/// Whether the broker still has what was on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerData {
    /// It has.
    Kept,
    /// It looks lost. Another look will tell.
    Doubtful,
    /// It is lost: the jobs of all waiting deliveries are published again.
    Lost,
}

impl Presence {
    /// The presence of a queue that some of the asked nodes have, and others lack. The rest is silent.
    #[must_use]
    pub const fn of(asked: usize, having: usize, lacking: usize) -> Self {
        match (having > 0, lacking > asked / 2) {
            (true, _) => Self::Exists,
            (false, true) => Self::Gone,
            (false, false) => Self::Unknown,
        }
    }

    /// Returns the verdict on the broker's disk by the sentinel, given its presence in the pass before. One pass is not enough:
    /// the nodes may be starting.
    #[must_use]
    pub const fn after(self, before: Self) -> BrokerData {
        match (before, self) {
            (_, Self::Exists) => BrokerData::Kept,
            (Self::Gone, Self::Gone) => BrokerData::Lost,
            (_, Self::Gone | Self::Unknown) => BrokerData::Doubtful,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_gone_when_more_than_half_of_the_nodes_lack_it_and_none_has_it() {
        for (asked, having, lacking, expected) in [
            (3, 3, 0, Presence::Exists),
            (3, 1, 2, Presence::Exists),
            (3, 0, 0, Presence::Unknown),
            (3, 0, 1, Presence::Unknown),
            (3, 0, 2, Presence::Gone),
            (2, 0, 1, Presence::Unknown),
            (2, 0, 2, Presence::Gone),
            (5, 0, 5, Presence::Gone),
            (5, 1, 4, Presence::Exists),
        ] {
            assert_eq!(
                Presence::of(asked, having, lacking),
                expected,
                "{having} of {asked} have it, {lacking} lack it"
            );
        }
    }

    #[test]
    fn the_disk_is_lost_when_two_passes_one_after_the_other_find_the_sentinel_gone() {
        use Presence::{Exists, Gone, Unknown};
        for before in [Exists, Unknown, Gone] {
            assert_eq!(Exists.after(before), BrokerData::Kept);
            assert_eq!(Unknown.after(before), BrokerData::Doubtful);
        }
        assert_eq!(
            [Exists, Unknown, Gone].map(|before| Gone.after(before)),
            [BrokerData::Doubtful, BrokerData::Doubtful, BrokerData::Lost]
        );
    }
}
