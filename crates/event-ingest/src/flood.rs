//! Which tenants flood (noisy neighbours; crates/README.md, fairness). Their jobs take the bulk lane, and do not hold up
//! other tenants.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::TenantId;
use parking_lot::Mutex;

/// How long a job counts, about. The level of a tenant with a steady rate is its number of jobs in this time.
const FADES_IN: Duration = Duration::from_secs(1);

/// A level for each tenant, which rises with every job and fades. A tenant floods once its level reaches the limit and
/// is above the levels of all tenants below the limit together. It floods until its level is below half of the limit.
#[derive(Clone)]
pub(crate) struct Flood {
    limit: f64,
    levels: Arc<Mutex<Levels>>,
}

struct Levels {
    swept: Instant,
    tenants: HashMap<TenantId, Level>,
}

struct Level {
    jobs: f64,
    at: Instant,
    floods: bool,
}

impl Flood {
    /// `per_second` is the limit: a tenant with fewer jobs a second does not flood.
    pub(crate) fn above(per_second: u32, now: Instant) -> Self {
        let levels = Levels { swept: now, tenants: HashMap::new() };
        Self { limit: per_second.into(), levels: Arc::new(Mutex::new(levels)) }
    }

    /// Counts a batch's jobs by tenant. Returns those of the tenants that flood.
    pub(crate) fn count(&self, jobs: &HashMap<TenantId, u32>, now: Instant) -> Vec<TenantId> {
        let mut levels = self.levels.lock();
        levels.sweep(now);
        let mut high = Vec::new();
        for (tenant, jobs) in jobs {
            let level = levels.tenants.entry(*tenant).or_insert(Level { jobs: 0.0, at: now, floods: false });
            let left = level.jobs_at(now);
            *level = Level { jobs: left + f64::from(*jobs), at: now, floods: level.floods && left >= self.limit / 2.0 };
            if level.floods || level.jobs >= self.limit {
                high.push(*tenant);
            }
        }
        // Mostly no tenant is high. Then the other levels need not be read.
        if !high.is_empty() {
            let all = levels.tenants.values().map(|level| level.jobs_at(now));
            let below: f64 = all.filter(|jobs| *jobs < self.limit).sum();
            high.retain(|tenant| {
                let Some(level) = levels.tenants.get_mut(tenant) else { return false };
                level.floods |= level.jobs >= self.limit && level.jobs > below;
                level.floods
            });
        }
        high
    }
}

impl Levels {
    /// Forgets tenants with hardly any level left, at most once in [`FADES_IN`].
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) >= FADES_IN {
            self.swept = now;
            self.tenants.retain(|_, level| level.jobs_at(now) >= 0.5);
        }
    }
}

impl Level {
    fn jobs_at(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        self.jobs * (-passed.as_secs_f64() / FADES_IN.as_secs_f64()).exp()
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
        let flood = Flood::above(1_000, now);
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
        let flood = Flood::above(1_000, now);
        assert!(batches(&flood, &mut now, 1, &[(1, 999)]).is_empty());
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 100)]), [tenant(1)]);
    }

    #[test]
    fn a_flood_lasts_until_it_has_fallen_below_half_of_the_limit() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, now);
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 5_000)]), [tenant(1)]);
        assert_eq!(batches(&flood, &mut now, 1_000, &[(1, 6), (2, 9)]), [tenant(1)], "600 a second of 1,500");
        assert!(batches(&flood, &mut now, 1_000, &[(1, 4), (2, 9)]).is_empty());
        assert!(batches(&flood, &mut now, 1_000, &[(1, 8)]).is_empty(), "it has to begin anew");
    }

    #[test]
    fn a_flood_that_was_followed_by_silence_is_over() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, now);
        assert_eq!(batches(&flood, &mut now, 1, &[(1, 5_000)]), [tenant(1)]);
        assert!(batches(&flood, &mut now, 500, &[(2, 1)]).is_empty());
        assert!(batches(&flood, &mut now, 1, &[(1, 600)]).is_empty(), "more than half of the limit, at once");
    }

    #[test]
    fn who_sends_nothing_is_forgotten() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, now);
        batches(&flood, &mut now, 1, &[(1, 5_000), (2, 10)]);
        batches(&flood, &mut now, 2_000, &[(3, 1)]);
        assert_eq!(flood.levels.lock().tenants.len(), 1);
    }
}
