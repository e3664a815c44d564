//! The jobs that are under way in this process.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::{Job, Redelivered};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    lane::{Place, Which},
    metrics::ByLane,
    parts::{Finisher, Left, Part},
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
    pub(crate) part: Part,
    pub(crate) handed: Handed,
    pub(crate) place: Place,
}

/// Which jobs are under way in either lane, and who is to be acknowledged when they are done: first the message that the
/// job came with, then its twins.
pub(crate) struct InFlight {
    jobs: Mutex<HashMap<Job, Under>>,
    gauge: ByLane,
    finisher: Finisher,
}

#[derive(Default)]
struct Under {
    messages: VecDeque<Message>,
    /// Told when the job is no longer under way.
    watched: Option<DropGuard>,
}

impl InFlight {
    pub(crate) fn new(gauge: ByLane, finisher: Finisher) -> Self {
        Self { jobs: Mutex::default(), gauge, finisher }
    }

    /// Who brings messages to their end.
    pub(crate) const fn finisher(&self) -> &Finisher {
        &self.finisher
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

    /// How often a job was handed out before, with whichever message.
    pub(crate) fn times(&self, job: Job) -> u32 {
        let jobs = self.lock();
        let messages = jobs.get(&job).into_iter().flat_map(|under| &under.messages);
        messages.map(|message| message.handed.times).max().unwrap_or_default()
    }

    /// Whether a job was handed out before, with whichever message.
    pub(crate) fn redelivered(&self, job: Job) -> Redelivered {
        Redelivered::from(self.times(job) > 0)
    }

    /// Brings jobs to their end whose effect is durable, but for what they leave. With their twins: the message that a job
    /// came with may be lost to its connection by now, and no other is of use any more. No job is under way here any more
    /// when what it leaves is there, where this same process may take it. `None` when that was abandoned.
    pub(crate) async fn finish(&self, jobs: impl IntoIterator<Item = (Job, Option<Left>)>) -> Option<()> {
        let mut done = Vec::new();
        for (job, left) in jobs {
            let Some(Under { messages, .. }) = self.lock().remove(&job) else { continue };
            if let Some(first) = messages.front() {
                self.gauge.of(first.handed.lane).dec();
            }
            let parts = messages.into_iter().map(|message| message.part);
            done.extend(Part::leaving(parts.collect(), left));
        }
        self.finisher.done(done).await
    }

    /// Brings a job to its end that was judged to be nothing to do now, but for what it leaves. A twin that came meanwhile
    /// is under way in its place and has to be judged itself: it may have been published for what happened after this
    /// one's judgement, or be the very message that brings this one back.
    pub(crate) async fn pass(&self, job: Job, left: Option<Left>) -> Option<Handed> {
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
        if let Some(Message { part, handed, place }) = judged {
            self.gauge.of(handed.lane).dec();
            drop(place);
            self.finisher.done(vec![(part, left)]).await;
        }
        twin
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Job, Under>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
