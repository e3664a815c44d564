//! What a node of a cluster can suffer, and what that may cost.

use std::time::Duration;

/// What happens to the nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordeal {
    /// `kill -9` of a broker, by its number, then a restart on its data.
    Kill(usize),
    /// The same, of the one that leads the queue of due jobs.
    KillLeader,
    /// The same, of all but one: there is no majority until they are back.
    KillMajority(usize),
    /// SIGSTOP of a broker, then SIGCONT.
    Freeze(usize),
    /// A broker's host is taken off the network, then put back.
    Cut(usize),
    /// `kill -9` of the primary database, then the promotion of the standby. The old primary becomes its standby.
    Promote,
}

impl Ordeal {
    /// Its kind, for the report.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Kill(_) => "a broker killed",
            Self::KillLeader => "the leader of a queue killed",
            Self::KillMajority(_) => "two brokers killed, then back",
            Self::Freeze(_) => "a broker frozen",
            Self::Cut(_) => "a broker cut off",
            Self::Promote => "the primary killed, from the promotion",
        }
    }

    /// The longest gap of deliveries that it should cause. `None` where deliveries wait for the nodes.
    pub const fn goal(self) -> Option<Duration> {
        match self {
            Self::Kill(_) | Self::KillLeader => Some(Duration::from_secs(5)),
            Self::Freeze(_) | Self::Cut(_) => Some(Duration::from_secs(30)),
            Self::Promote => Some(Duration::from_secs(15)),
            Self::KillMajority(_) => None,
        }
    }
}
