//! High load: many jobs a second.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

/// A level that rises with every job and falls by `per_second` a second. The load is high while the level is
/// `per_second` or more. A burst of fewer jobs is not high load; a rate that stays above `per_second` soon is.
#[derive(Clone, Debug)]
pub(crate) struct HighLoad {
    per_second: f64,
    level: Arc<Mutex<Level>>,
}

#[derive(Debug)]
struct Level {
    jobs: f64,
    at: Instant,
}

impl HighLoad {
    /// High load is `per_second` jobs and more. It always is, if that is 0.
    pub(crate) fn above(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.into(), level: Arc::new(Mutex::new(Level { jobs: 0.0, at: now })) }
    }

    /// Counts jobs. Returns whether the load is high. High load ends about a second after the last job at the latest.
    pub(crate) fn count(&self, jobs: usize, now: Instant) -> bool {
        let mut level = self.level.lock();
        let fallen = self.per_second * now.saturating_duration_since(level.at).as_secs_f64();
        let risen = (level.jobs - fallen).max(0.0) + f64::from(u32::try_from(jobs).unwrap_or(u32::MAX));
        *level = Level { jobs: risen.min(2.0 * self.per_second), at: now };
        risen >= self.per_second
    }

    /// Returns whether the load is high.
    pub(crate) fn is_on(&self, now: Instant) -> bool {
        self.count(0, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_steady_rate_below_the_limit_and_a_burst_below_it_are_no_high_load_and_more_is_until_it_is_over() {
        let start = Instant::now();
        let load = HighLoad::above(500, start);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!((0..100).all(|tick| !load.count(49, at(tick * 100))), "490 a second");
        assert!(!load.count(450, at(20_000)));
        assert!(load.count(100, at(20_010)));
        assert!(!load.count(10, at(20_500)));
        assert!((0..80).any(|tick| load.count(60, at(30_000 + tick * 100))), "600 a second, sooner or later");
        assert!(load.count(100_000, at(50_000)));
        assert!(load.count(1, at(50_900)));
        assert!(!load.count(1, at(51_200)), "soon over, however much it was");
        assert!(load.count(600, at(60_000)) && load.is_on(at(60_010)) && !load.is_on(at(60_900)));
        assert!(HighLoad::above(0, start).is_on(at(60_000)), "no limit, all is");
    }
}
