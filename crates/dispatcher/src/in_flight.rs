//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use broker::Acker;
use domain::{Job, Redelivered};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    lane::{Place, Which},
    metrics::ByLane,
};

/// How a message was handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// By which lane's queue.
    pub(crate) lane: Which,
    /// The broker's flag, or that of a message that it was moved from.
    pub(crate) redelivered: Redelivered,
    /// How often before.
    pub(crate) times: u32,
}

/// What a job came with.
pub(crate) struct Message {
    /// Of its part of the message.
    pub(crate) acker: Acker,
    pub(crate) handed: Handed,
    #[expect(dead_code, reason = "held, and given back when dropped")]
    pub(crate) place: Place,
}

/// Which jobs are under way in either lane, and who is to be acknowledged when they are done: first the message that the
/// job came with, then its twins.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, Under>>,
    gauge: ByLane,
}

#[derive(Default)]
struct Under {
    messages: VecDeque<Message>,
    /// Told when the job is no longer under way.
    watched: Option<DropGuard>,
}

impl InFlight {
    pub(crate) fn new(gauge: ByLane) -> Self {
        Self { jobs: Mutex::default(), gauge }
    }

    /// Takes a job. `false` when its twin is under way already: then it joins the twin.
    pub(crate) fn begin(&self, job: Job, message: Message) -> bool {
        match self.lock().entry(job) {
            Entry::Occupied(mut twin) => {
                twin.get_mut().messages.push_back(message);
                false
            }
            Entry::Vacant(entry) => {
                self.gauge.of(message.handed.lane).inc();
                entry.insert(Under::default()).messages.push_back(message);
                true
            }
        }
    }

    /// Is cancelled as soon as the job is no longer under way: at once, if it is not now.
    pub(crate) fn watch(&self, job: Job) -> CancellationToken {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        if let Some(under) = self.lock().get_mut(&job) {
            under.watched = Some(guard);
        }
        token
    }

    /// Takes jobs out, with their twins: in the order in which they came.
    pub(crate) fn take(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Message> {
        let mut under_way = self.lock();
        let mut taken = Vec::new();
        for job in jobs {
            let Some(under) = under_way.remove(&job) else { continue };
            if let Some(first) = under.messages.front() {
                self.gauge.of(first.handed.lane).dec();
            }
            taken.extend(under.messages);
        }
        taken
    }

    /// Acknowledges jobs whose effect is durable, and their twins: the message that a job came with may be lost to its
    /// connection by now, and no other is of use any more.
    pub(crate) async fn finish(&self, jobs: impl IntoIterator<Item = Job>) {
        let taken = self.take(jobs);
        Acker::ack_all(taken.into_iter().map(|message| message.acker).collect()).await;
    }

    /// Acknowledges a job that was judged to be nothing to do now. A twin that came meanwhile is under way in its place
    /// and has to be judged itself: it may have been published for what happened after this one's judgement, or be the
    /// very message that brings this one back.
    pub(crate) async fn pass(&self, job: Job) -> Option<Handed> {
        let (judged, twin) = {
            let mut jobs = self.lock();
            let under = jobs.get_mut(&job)?;
            under.watched = None;
            let judged = under.messages.pop_front();
            let twin = under.messages.front().map(|twin| twin.handed);
            if twin.is_none() {
                jobs.remove(&job);
            }
            (judged, twin)
        };
        if let Some(twin) = twin {
            self.gauge.of(twin.lane).inc();
        }
        if let Some(Message { acker, handed, .. }) = judged {
            self.gauge.of(handed.lane).dec();
            acker.ack().await;
        }
        twin
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Job, Under>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
