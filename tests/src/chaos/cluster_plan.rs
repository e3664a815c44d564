//! The faults of a storm on a cluster. Each ordeal of a node has time for itself, so that the report can say what it
//! costs. In between, processes and their connections suffer.

use std::time::Duration;

use fastrand::Rng;

use super::{
    ordeal::Ordeal,
    plan::{Fault, Options, PlannedFault, short_fault},
};

/// Seconds of short faults before each ordeal, and of calm after them.
const FAULTS_SECONDS: f64 = 5.0;
const CALM_SECONDS: f64 = 3.0;
/// Short faults before each ordeal.
const SHORT_FAULTS: usize = 2;

/// The plan of a seed. It has the ordeals that fit in, one at least.
pub(super) fn faults(options: &Options) -> Vec<PlannedFault> {
    let mut dice = Rng::with_seed(options.seed);
    let (mut faults, mut at) = (Vec::new(), 2.0);
    let length = options.length.as_secs_f64();
    loop {
        for ordeal in round(&mut dice) {
            let (lasts, with_recovery) = seconds(ordeal);
            let end = at + FAULTS_SECONDS + CALM_SECONDS + with_recovery;
            if end > length && !faults.is_empty() {
                return faults;
            }
            let mut short: Vec<f64> = (0..SHORT_FAULTS).map(|_| dice.f64() * FAULTS_SECONDS).collect();
            short.sort_unstable_by(f64::total_cmp);
            for after in short {
                faults.push(PlannedFault { at: Duration::from_secs_f64(at + after), fault: short_fault(&mut dice) });
            }
            let fault = Fault::Ordeal(ordeal, Duration::from_secs_f64(lasts));
            faults.push(PlannedFault { at: Duration::from_secs_f64(at + FAULTS_SECONDS + CALM_SECONDS), fault });
            at = end;
        }
    }
}

/// Every ordeal once, in random order.
fn round(dice: &mut Rng) -> [Ordeal; 6] {
    let mut broker = || dice.usize(1..=3);
    let mut all = [
        Ordeal::Kill(broker()),
        Ordeal::KillLeader,
        Ordeal::KillMajority(broker()),
        Ordeal::Freeze(broker()),
        Ordeal::Cut(broker()),
        Ordeal::Promote,
    ];
    dice.shuffle(&mut all);
    all
}

/// How long an ordeal lasts, and how long until all nodes are likely to be back.
const fn seconds(ordeal: Ordeal) -> (f64, f64) {
    match ordeal {
        Ordeal::Kill(_) | Ordeal::KillLeader => (6.0, 24.0),
        Ordeal::KillMajority(_) => (8.0, 30.0),
        // Longer than two heartbeats.
        Ordeal::Freeze(_) => (35.0, 45.0),
        Ordeal::Cut(_) => (40.0, 52.0),
        Ordeal::Promote => (2.0, 20.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::plan::Setup, *};

    fn planned(seed: u64, seconds: u64) -> Vec<PlannedFault> {
        faults(&Options { seed, length: Duration::from_secs(seconds), rate: 20, setup: Setup::Cluster })
    }

    #[test]
    fn a_seed_repeats_the_plan_and_a_long_storm_has_every_ordeal() {
        assert_eq!(planned(7, 250), planned(7, 250));
        assert_ne!(planned(7, 250), planned(8, 250));
        for seed in 0..50 {
            let faults = planned(seed, 250);
            let mut kinds: Vec<_> =
                faults.iter().filter_map(|planned| ordeal(planned.fault)).map(Ordeal::kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            assert_eq!(kinds.len(), 6, "{faults:?}");
            assert!(faults.is_sorted_by_key(|planned| planned.at));
            assert!(faults.iter().all(|planned| planned.at < Duration::from_secs(250)));
        }
    }

    #[test]
    fn a_short_one_has_at_least_one_ordeal() {
        assert_eq!(planned(1, 1).into_iter().filter_map(|planned| ordeal(planned.fault)).count(), 1);
    }

    fn ordeal(fault: Fault) -> Option<Ordeal> {
        if let Fault::Ordeal(ordeal, _) = fault { Some(ordeal) } else { None }
    }
}
