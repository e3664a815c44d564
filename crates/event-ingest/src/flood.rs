//! Which tenants' jobs take the bulk lane (DESIGN 6): who floods the queues does not hold up those of the main lane.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use domain::TenantId;

/// Jobs count for so long, about: a steady rate of so many jobs a second has a level of as many.
const MEMORY: Duration = Duration::from_secs(1);

/// The rates at which tenants' jobs come, each as a level that rises with every job and fades. A tenant floods once its level
/// is above the limit, and above those of all tenants below the limit together; until it is below half of the limit.
#[derive(Clone)]
pub(crate) struct Flood {
    limit: f64,
    levels: Arc<Mutex<Levels>>,
}

struct Levels {
    at: Instant,
    tenants: HashMap<TenantId, Level>,
}

#[derive(Default)]
struct Level {
    jobs: f64,
    floods: bool,
}

impl Flood {
    /// Nobody floods with fewer than so many jobs a second.
    pub(crate) fn above(per_second: u32, now: Instant) -> Self {
        let levels = Levels { at: now, tenants: HashMap::new() };
        Self { limit: per_second.into(), levels: Arc::new(Mutex::new(levels)) }
    }

    /// Counts a batch's jobs by their tenants. Returns the tenants of these that flood.
    pub(crate) fn count(&self, jobs: &HashMap<TenantId, u32>, now: Instant) -> Vec<TenantId> {
        let mut levels = self.lock();
        levels.fade(now);
        for (tenant, jobs) in jobs {
            levels.tenants.entry(*tenant).or_default().jobs += f64::from(*jobs);
        }
        let below: f64 = levels.tenants.values().map(|level| level.jobs).filter(|jobs| *jobs < self.limit).sum();
        for level in levels.tenants.values_mut() {
            let begins = level.jobs >= self.limit && level.jobs > below;
            level.floods = begins || (level.floods && level.jobs >= self.limit / 2.0);
        }
        let floods = |tenant: &&TenantId| levels.tenants.get(*tenant).is_some_and(|level| level.floods);
        jobs.keys().filter(floods).copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Levels {
    /// Forgets whom little is left of.
    fn fade(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        let left = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.tenants.retain(|_, level| {
            level.jobs *= left;
            level.jobs >= 0.5
        });
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        Uuid::from_u128(number).into()
    }

    /// So many batches, a hundredth of a second apart, of so many jobs by tenant. Returns who floods in the last one.
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
    fn who_sends_nothing_is_forgotten() {
        let mut now = Instant::now();
        let flood = Flood::above(1_000, now);
        batches(&flood, &mut now, 1, &[(1, 5_000), (2, 10)]);
        batches(&flood, &mut now, 2_000, &[(3, 1)]);
        assert_eq!(flood.lock().tenants.len(), 1);
    }
}
