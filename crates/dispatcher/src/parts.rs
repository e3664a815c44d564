//! Messages, and the jobs that they hold: a message is acknowledged when all of them are done, and what they leave behind is
//! published just before: when this process dies earlier, the message comes again as it was, and nothing that it left is there
//! twice.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use broker::{Acker, Names, Outgoing, Publisher};
use domain::{Job, RetrySchedule};
use service_kit::publishing::{FollowUp, Publishing};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

/// A job's part of the message that it came with. One that is dropped is never done, and so its message comes again.
pub(crate) struct Part(Arc<Mutex<Whole>>);

struct Whole {
    /// Until all parts are done.
    acker: Option<Acker>,
    undone: usize,
    left: Vec<Left>,
}

/// What a job leaves behind.
pub(crate) enum Left {
    /// A job that is to come at a time.
    Job(Job, OffsetDateTime),
    /// The same job once more, at a time. It was handed out so often before, which whoever takes it then has to know:
    /// another dispatcher may be making this very attempt, and count on the message for the retry.
    Again(Job, OffsetDateTime, u32),
    /// A message.
    Message(Outgoing),
}

impl Part {
    /// The parts of a message.
    pub(crate) fn of(acker: Acker, parts: usize) -> Vec<Self> {
        let whole = Arc::new(Mutex::new(Whole { acker: Some(acker), undone: parts, left: Vec::new() }));
        (0..parts).map(|_| Self(Arc::clone(&whole))).collect()
    }

    /// Whether its message can still be acknowledged.
    pub(crate) fn is_usable(&self) -> bool {
        self.whole().acker.as_ref().is_some_and(Acker::is_usable)
    }

    /// One job's parts, of which one leaves something: one that comes again when it is not acknowledged, if there is any.
    pub(crate) fn leaving(parts: Vec<Self>, left: Option<Left>) -> impl Iterator<Item = (Self, Option<Left>)> {
        let (who, mut left) = (parts.iter().position(Self::is_usable).unwrap_or_default(), left);
        parts.into_iter().enumerate().map(move |(at, part)| (part, if at == who { left.take() } else { None }))
    }

    /// Notes that it is done. With the last part of a message comes what all of them left, and the right to acknowledge.
    fn done(self, left: Option<Left>) -> Option<(Acker, Vec<Left>)> {
        let mut whole = self.whole();
        whole.left.extend(left);
        whole.undone -= 1;
        if whole.undone > 0 {
            return None;
        }
        Some((whole.acker.take()?, std::mem::take(&mut whole.left)))
    }

    fn whole(&self) -> MutexGuard<'_, Whole> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings messages to their end.
#[derive(Clone)]
pub(crate) struct Finisher {
    pub(crate) publisher: Publisher,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Finisher {
    /// Notes parts as done, whose own effects are durable. Of the messages that are done with them, publishes what was
    /// left, waits for the confirms, and acknowledges each once its own are there. Returns when all are acknowledged: a queue
    /// that refuses may take long, and holds up its own messages only. `None` when this was abandoned.
    ///
    /// A message whose connection is lost comes again, and its jobs leave the same then: it is not published here, where it
    /// would be there twice.
    pub(crate) async fn done(&self, parts: impl IntoIterator<Item = (Part, Option<Left>)>) -> Option<()> {
        let (mut follow_ups, mut ready) = (Vec::new(), Vec::new());
        for (part, left) in parts {
            let Some((acker, left)) = part.done(left) else { continue };
            if left.is_empty() {
                ready.push(acker);
                continue;
            }
            let source = Arc::new(acker);
            follow_ups.extend(left.into_iter().map(|content| FollowUp { sources: vec![Arc::clone(&source)], content }));
        }
        let Self { publisher, abandon, .. } = self;
        let publishing = Publishing { what: "publishing what jobs leave", publisher, abandon };
        let message = |FollowUp { sources, content }: &FollowUp<Acker, Left>| {
            let is_wanted = sources.iter().all(|acker| acker.is_usable());
            is_wanted.then(|| Cow::Owned(self.message(content, OffsetDateTime::now_utc())))
        };
        publishing.all(follow_ups, ready, |follow_up| message(follow_up), Acker::ack_all).await
    }

    fn message(&self, left: &Left, now: OffsetDateTime) -> Outgoing {
        match left {
            Left::Job(job, due) => self.names.job_at(*job, *due, now, &self.schedule),
            Left::Again(job, due, times) => self.names.job_at(*job, *due, now, &self.schedule).carrying(*times),
            Left::Message(message) => message.clone(),
        }
    }
}
