//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::Acker;
use domain::Job;
use prometheus_client::metrics::gauge::Gauge;

/// Which jobs are under way, and who is to be acknowledged when they are done.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, Vec<Acker>>>,
    gauge: Gauge,
}

impl InFlight {
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { jobs: Mutex::default(), gauge }
    }

    /// Takes a job. `false` when its twin is under way already: then both are acknowledged together, because the
    /// message that the twin came with may be lost to its connection by now.
    pub(crate) fn begin(&self, job: Job, acker: Acker) -> bool {
        let mut jobs = self.lock();
        let is_new = match jobs.entry(job) {
            Entry::Occupied(mut twin) => {
                twin.get_mut().push(acker);
                false
            }
            Entry::Vacant(place) => {
                place.insert(vec![acker]);
                true
            }
        };
        self.gauge.set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
        is_new
    }

    /// Acknowledges a job: its effect is durable.
    pub(crate) async fn finish(&self, job: Job) {
        let ackers = {
            let mut jobs = self.lock();
            let ackers = jobs.remove(&job).unwrap_or_default();
            self.gauge.set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
            ackers
        };
        for acker in ackers {
            acker.ack().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Job, Vec<Acker>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
