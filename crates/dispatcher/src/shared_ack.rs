//! The shared acknowledgement of a message that holds several jobs. The message is acknowledged when all its jobs are
//! done. Their follow-ups are published just before that. If this process dies earlier, the message is redelivered
//! unchanged, and no follow-up exists twice.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::{Acker, Names, Outgoing, Publisher};
use domain::{Job, RetrySchedule};
use service_kit::publishing::{self, Publishing};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

/// One job's part of the acknowledgement of its message. A dropped part is never done, so its message is redelivered.
pub(crate) struct SharedAck(Arc<Mutex<Shared>>);

/// Whether the jobs of a message belong to the bulk lane. What they leave is marked then, so that retries take it, too.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    Bulk,
    Other,
}

struct Shared {
    /// Taken when the last part is done.
    acker: Option<Acker>,
    origin: Origin,
    undone: usize,
    follow_ups: Vec<FollowUp>,
}

/// A message that a job leaves behind.
pub(crate) enum FollowUp {
    /// The job of the next attempt, due at a time.
    Retry(Job, OffsetDateTime),
    /// The same job in a new message, due at a time, with its delivery count: the broker would count from 0. Whoever
    /// takes it needs the count: another dispatcher may be making this attempt, and rely on the message for the retry.
    Republish(Job, OffsetDateTime, u32),
    /// A message as it is.
    Message(Outgoing),
}

impl SharedAck {
    /// The parts of a message, one for each job.
    pub(crate) fn of(acker: Acker, origin: Origin, jobs: usize) -> Vec<Self> {
        let shared = Shared { acker: Some(acker), origin, undone: jobs, follow_ups: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        (0..jobs).map(|_| Self(Arc::clone(&shared))).collect()
    }

    /// Whether the message can still be acknowledged.
    pub(crate) fn is_usable(&self) -> bool {
        self.shared().acker.as_ref().is_some_and(Acker::is_usable)
    }

    /// Gives a job's follow-up to one of its parts: the job has one in its own message and in each duplicate. It is the
    /// first whose message can still be acknowledged: the follow-ups of the others are not published.
    pub(crate) fn attach_follow_up(
        parts: Vec<Self>,
        mut follow_up: Option<FollowUp>,
    ) -> impl Iterator<Item = (Self, Option<FollowUp>)> {
        let chosen = parts.iter().position(Self::is_usable).unwrap_or_default();
        let parts = parts.into_iter().enumerate();
        parts.map(move |(at, part)| (part, if at == chosen { follow_up.take() } else { None }))
    }

    /// Notes that the job is done. The last part of a message returns the right to acknowledge it, and all its
    /// follow-ups.
    fn done(self, follow_up: Option<FollowUp>) -> Option<(Acker, Origin, Vec<FollowUp>)> {
        let mut shared = self.shared();
        shared.follow_ups.extend(follow_up);
        shared.undone -= 1;
        if shared.undone > 0 {
            return None;
        }
        Some((shared.acker.take()?, shared.origin, std::mem::take(&mut shared.follow_ups)))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes follow-ups and acknowledges messages.
#[derive(Clone)]
pub(crate) struct Finisher {
    pub(crate) publisher: Publisher,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Finisher {
    /// Marks parts as done. Their own effects have to be durable. Publishes the follow-ups of the messages that are
    /// done with them, waits for the confirms, and acknowledges each message once its follow-ups are confirmed. Returns
    /// when all are acknowledged. A queue that refuses may take long, but holds up its own messages only. Returns
    /// `None` when this was abandoned.
    ///
    /// The follow-ups of a message whose connection is lost are not published. The message is redelivered, and its jobs
    /// leave them again.
    pub(crate) async fn done(&self, parts: impl IntoIterator<Item = (SharedAck, Option<FollowUp>)>) -> Option<()> {
        let (mut follow_ups, mut ready) = (Vec::new(), Vec::new());
        for (part, follow_up) in parts {
            let Some((acker, origin, left)) = part.done(follow_up) else { continue };
            if left.is_empty() {
                ready.push(acker);
                continue;
            }
            let source = Arc::new(acker);
            let of_source = |left| publishing::FollowUp { sources: vec![Arc::clone(&source)], content: (left, origin) };
            follow_ups.extend(left.into_iter().map(of_source));
        }
        let Self { publisher, abandon, .. } = self;
        let publishing = Publishing { what: "publishing follow-ups of jobs", publisher, abandon };
        let message = |publishing::FollowUp { sources, content }: &publishing::FollowUp<Acker, (FollowUp, Origin)>| {
            let is_wanted = sources.iter().all(|acker| acker.is_usable());
            is_wanted.then(|| Cow::Owned(self.message(content, OffsetDateTime::now_utc())))
        };
        publishing.all(follow_ups, ready, |follow_up| message(follow_up), Acker::ack_all).await
    }

    fn message(&self, (follow_up, origin): &(FollowUp, Origin), now: OffsetDateTime) -> Outgoing {
        let job_at = |job: &Job, due: &OffsetDateTime| self.names.job_at(*job, *due, now, &self.schedule);
        let message = match follow_up {
            FollowUp::Retry(job, due) => job_at(job, due),
            FollowUp::Republish(job, due, delivery_count) => job_at(job, due).carrying(*delivery_count),
            FollowUp::Message(message) => message.clone(),
        };
        match origin {
            Origin::Bulk => message.of_bulk(),
            Origin::Other => message,
        }
    }
}
