//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::Acker;
use domain::{Job, Redelivered};
use prometheus_client::metrics::gauge::Gauge;

/// Which jobs are under way, and who is to be acknowledged when they are done: first the message that the job came with,
/// then its twins.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, VecDeque<(Acker, Redelivered)>>>,
    gauge: Gauge,
}

impl InFlight {
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { jobs: Mutex::default(), gauge }
    }

    /// Takes a job. `false` when its twin is under way already: then it joins the twin.
    pub(crate) fn begin(&self, job: Job, acker: Acker, redelivered: Redelivered) -> bool {
        let mut jobs = self.lock();
        let is_new = match jobs.entry(job) {
            Entry::Occupied(mut twin) => {
                twin.get_mut().push_back((acker, redelivered));
                false
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([(acker, redelivered)]));
                true
            }
        };
        self.show(&jobs);
        is_new
    }

    /// Acknowledges a job whose effect is durable, and its twins: the message that it came with may be lost to its
    /// connection by now, and no other is of use any more.
    pub(crate) async fn finish(&self, job: Job) {
        let ackers = {
            let mut jobs = self.lock();
            let ackers = jobs.remove(&job).unwrap_or_default();
            self.show(&jobs);
            ackers
        };
        for (acker, _) in ackers {
            acker.ack().await;
        }
    }

    /// Acknowledges a job that was judged to be nothing to do now. A twin that came meanwhile is under way in its place
    /// and has to be judged itself: it may have been published for what happened after this one's judgement, or be the
    /// very message that brings this one back.
    pub(crate) async fn pass(&self, job: Job) -> Option<Redelivered> {
        let (judged, twin) = {
            let mut jobs = self.lock();
            let messages = jobs.get_mut(&job)?;
            let judged = messages.pop_front();
            let twin = messages.front().map(|(_, redelivered)| *redelivered);
            if twin.is_none() {
                jobs.remove(&job);
            }
            self.show(&jobs);
            (judged, twin)
        };
        if let Some((acker, _)) = judged {
            acker.ack().await;
        }
        twin
    }

    fn show(&self, jobs: &HashMap<Job, VecDeque<(Acker, Redelivered)>>) {
        self.gauge.set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Job, VecDeque<(Acker, Redelivered)>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
