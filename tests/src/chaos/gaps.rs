//! The gaps of deliveries that ordeals cause: how long no witness got anything.

use std::{collections::BTreeMap, time::Duration};

use time::OffsetDateTime;

use super::ordeal::Ordeal;

/// After an ordeal is over, nodes and connections come back. What that costs belongs to it.
const RECOVERY_PERIOD: Duration = Duration::from_secs(5);

/// An ordeal that has happened.
#[derive(Clone, Copy, Debug)]
pub struct Suffered {
    /// What happened.
    pub ordeal: Ordeal,
    /// From when on deliveries may have stopped.
    pub from: OffsetDateTime,
    /// When all nodes were back.
    pub over: OffsetDateTime,
}

/// The longest gap of the ordeals of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What happened.
    pub kind: &'static str,
    /// How often.
    pub times: usize,
    /// The longest time without a delivery.
    pub longest: Duration,
    /// How long it should be at most.
    pub goal: Option<Duration>,
}

impl Gap {
    /// Whether it is longer than it should be.
    pub fn is_missed(&self) -> bool {
        self.goal.is_some_and(|goal| self.longest > goal)
    }
}

/// The gaps by kind, from the times at which deliveries arrived.
#[must_use]
pub fn gaps(suffered: &[Suffered], mut arrivals: Vec<OffsetDateTime>) -> Vec<Gap> {
    arrivals.sort_unstable();
    let mut kinds = BTreeMap::new();
    for one in suffered {
        let kind = one.ordeal.kind();
        let gap = kinds.entry(kind).or_insert(Gap { kind, times: 0, longest: Duration::ZERO, goal: one.ordeal.goal() });
        gap.times += 1;
        gap.longest = gap.longest.max(longest(&arrivals, one.from, one.over + RECOVERY_PERIOD));
    }
    kinds.into_values().collect()
}

/// The longest silence that begins or is under way between two times. It counts from the first of them on.
fn longest(arrivals: &[OffsetDateTime], from: OffsetDateTime, until: OffsetDateTime) -> Duration {
    let first = arrivals.partition_point(|arrival| *arrival <= from);
    let mut silent_since = from;
    let mut longest = Duration::ZERO;
    for arrival in &arrivals[first..] {
        longest = longest.max(Duration::try_from(*arrival - silent_since).unwrap_or_default());
        silent_since = *arrival;
        if silent_since >= until {
            return longest;
        }
    }
    longest.max(Duration::try_from(until - silent_since).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_000_000 + second).expect("a time")
    }

    #[test]
    fn the_longest_silence_from_an_ordeal_to_its_end_counts() {
        let suffered = |from, over| Suffered { ordeal: Ordeal::KillLeader, from: at(from), over: at(over) };
        let longest = |suffered: &[Suffered], seconds: &[i64]| {
            gaps(suffered, seconds.iter().map(|second| at(*second)).collect())[0].longest.as_secs()
        };
        assert_eq!(longest(&[suffered(10, 20)], &[1, 9, 14, 15, 18, 24, 90]), 66, "a silence may outlast it");
        assert_eq!(longest(&[suffered(10, 20)], &[1, 9, 14, 15, 18, 25, 90]), 7, "one after it is another's");
        assert_eq!(longest(&[suffered(10, 12), suffered(30, 31)], &[11, 12, 13, 14, 16, 17, 30, 36]), 6);
        assert_eq!(longest(&[suffered(10, 20)], &[9, 12]), 13, "nothing comes any more");
        assert_eq!(longest(&[suffered(10, 20)], &[]), 15);
    }

    #[test]
    fn a_gap_beyond_its_goal_is_missed() {
        let gap = |seconds, goal| Gap { kind: "", times: 1, longest: Duration::from_secs(seconds), goal };
        let five = Some(Duration::from_secs(5));
        assert!(gap(6, five).is_missed() && !gap(5, five).is_missed() && !gap(60, None).is_missed());
    }
}
