//! The rate of jobs: whether the load is high, and which tenants flood (noisy neighbours; crates/README.md, fairness).
//! Their jobs take the bulk lane, and do not hold up other tenants.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::TenantId;
use parking_lot::Mutex;

/// The time for which a job counts, about. The level of a steady rate is its number of jobs in this time.
const FADE_TIME: Duration = Duration::from_secs(1);

/// A level for each tenant, and one for all jobs, which rises with every job and fades. A tenant floods once its level
/// reaches the limit and is above the levels of all tenants below the limit together. It floods until its level is below
/// half of the limit. The load is high while the level of all jobs is `batch_above` or more. That level stops at twice `batch_above`, so
/// that high load is soon over after a burst, however large.
#[derive(Clone)]
pub(crate) struct Flood {
    limit: f64,
    batch_above: f64,
    levels: Arc<Mutex<Levels>>,
}

struct Levels {
    swept: Instant,
    all: Level,
    tenants: HashMap<TenantId, Level>,
}

struct Level {
    jobs: f64,
    at: Instant,
    floods: bool,
}

impl Flood {
    /// `limit`: a tenant with fewer jobs a second does not flood. `batch_above`: the jobs a second from which on the load is high.
    pub(crate) fn above(limit: u32, batch_above: u32, now: Instant) -> Self {
        let levels = Levels { swept: now, all: Level::new(now), tenants: HashMap::new() };
        Self { limit: limit.into(), batch_above: batch_above.into(), levels: Arc::new(Mutex::new(levels)) }
    }

    /// Returns true while the load is high: until a second after the last job at the latest.
    pub(crate) fn is_high_load(&self, now: Instant) -> bool {
        self.levels.lock().all.jobs_at(now) >= self.batch_above
    }

    /// Counts a batch's jobs by tenant. Returns those of the tenants that flood.
    pub(crate) fn count(&self, jobs: &HashMap<TenantId, u32>, now: Instant) -> Vec<TenantId> {
        let (mut levels, limit) = (self.levels.lock(), self.limit);
        levels.sweep(now);
        levels.all.rise(jobs.values().sum(), now);
        levels.all.jobs = levels.all.jobs.min(2.0 * self.batch_above);
        let mut high = Vec::new();
        for (tenant, jobs) in jobs {
            let level = levels.tenants.entry(*tenant).or_insert_with(|| Level::new(now));
            level.floods &= level.jobs_at(now) >= limit / 2.0;
            level.rise(*jobs, now);
            if level.floods || level.jobs >= limit {
                high.push(*tenant);
            }
        }
        // Mostly no tenant is high. Then the other levels need not be read.
        if !high.is_empty() {
            let all = levels.tenants.values().map(|level| level.jobs_at(now));
            let below: f64 = all.filter(|jobs| *jobs < limit).sum();
            high.retain(|tenant| {
                let Some(level) = levels.tenants.get_mut(tenant) else { return false };
                level.floods |= level.jobs >= limit && level.jobs > below;
                level.floods
            });
        }
        high
    }
}

impl Levels {
    /// Forgets tenants with hardly any level left, at most once in [`FADE_TIME`].
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) >= FADE_TIME {
            self.swept = now;
            self.tenants.retain(|_, level| level.jobs_at(now) >= 0.5);
        }
    }
}

impl Level {
    const fn new(now: Instant) -> Self {
        Self { jobs: 0.0, at: now, floods: false }
    }

    fn rise(&mut self, jobs: u32, now: Instant) {
        (self.jobs, self.at) = (self.jobs_at(now) + f64::from(jobs), now);
    }

    fn jobs_at(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        self.jobs * (-passed.as_secs_f64() / FADE_TIME.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        Uuid::from_u128(number).into()
    }

    /// Counts `count` batches of `jobs` by tenant, 10 ms apart. Returns who floods in the last one.
    fn batches(flood: &Flood, now: &mut Instant, count: u32, jobs: &[(u128, u32)]) -> Vec<TenantId> {
        let jobs = jobs.iter().map(|(number, jobs)| (tenant(*number), *jobs)).collect();
        let mut flooding = Vec::new();
        for _ in 0..count {
            *now += Duration::from_millis(10);
            flooding = flood.count(&jobs, *now);
        }
        flooding
    }

    #[test]
    fn a_tenant_floods_above_the_limit_and_with_more_than_all_that_are_below_it_together() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        assert!(batches(&flood, &mut now, 500, &[(1, 9), (2, 1)]).is_empty(), "900 a second");
        assert_eq!(batches(&flood, &mut now, 100, &[(1, 30), (2, 1)]), [tenant(1)]);
        assert!(batches(&flood, &mut now, 500, &[(1, 1)]).is_empty(), "it is over");
        let busy = [(1, 12), (2, 9), (3, 9), (4, 1)];
        assert!(batches(&flood, &mut now, 500, &busy).is_empty(), "hardly more than the others, who are many");
        assert_eq!(batches(&flood, &mut now, 500, &[(1, 30), (2, 9), (3, 9), (4, 1)]), [tenant(1)]);
        let mut both = batches(&flood, &mut now, 500, &[(1, 30), (2, 40), (3, 1)]);
        both.sort_unstable();
        assert_eq!(both, [tenant(1), tenant(2)], "two at once, and the one who comes second");
    }

    #[test]
    fn a_burst_below_the_limit_is_no_flood_and_one_above_it_is_from_its_first_batch_on() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        assert!(batches(&flood, &mut now, 1, &[(1, 999)]).is_empty());
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 100)]), [tenant(1)]);
    }

    #[test]
    fn a_flood_lasts_until_it_has_fallen_below_half_of_the_limit() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 5_000)]), [tenant(1)]);
        assert_eq!(batches(&flood, &mut now, 1_000, &[(1, 6), (2, 9)]), [tenant(1)], "600 a second of 1,500");
        assert!(batches(&flood, &mut now, 1_000, &[(1, 4), (2, 9)]).is_empty());
        assert!(batches(&flood, &mut now, 1_000, &[(1, 8)]).is_empty(), "it has to begin anew");
    }

    #[test]
    fn a_flood_that_was_followed_by_silence_is_over() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 5_000)]), [tenant(1)]);
        assert!(batches(&flood, &mut now, 500, &[(2, 1)]).is_empty());
        assert!(batches(&flood, &mut now, 1, &[(1, 600)]).is_empty(), "more than half of the limit, at once");
    }

    #[test]
    fn who_sends_nothing_is_forgotten() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        batches(&flood, &mut now, 1, &[(1, 5_000), (2, 10)]);
        batches(&flood, &mut now, 2_000, &[(3, 1)]);
        assert_eq!(flood.levels.lock().tenants.len(), 1);
    }
    #[test]
    fn the_load_is_high_from_the_limit_on_and_until_it_is_over() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, 500, now);
        for (jobs, is_high) in [([(1, 1), (2, 3)], false), ([(1, 3), (2, 3)], true)] {
            batches(&flood, &mut now, 500, &jobs);
            assert_eq!(flood.is_high_load(now), is_high, "{jobs:?} each 10 ms");
        }
        now += Duration::from_secs(10);
        batches(&flood, &mut now, 1, &[(1, 250), (2, 249)]);
        assert!(!flood.is_high_load(now), "a burst below the limit");
        batches(&flood, &mut now, 1, &[(1, 100_000)]);
        assert!(flood.is_high_load(now + FADE_TIME / 2) && !flood.is_high_load(now + FADE_TIME), "however much it was");
        let always = Flood::above(1_000, 0, now);
        assert!(always.is_high_load(now), "no limit, all is");
    }
}
