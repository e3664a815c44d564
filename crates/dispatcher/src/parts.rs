//! Messages, and the jobs that they hold: a message is acknowledged when all of them are done, and what they leave behind is
//! published just before: when this process dies earlier, the message comes again as it was, and nothing that it left is there
//! twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::{Acker, Names, Outgoing, Publisher};
use domain::{Job, RetrySchedule};
use service_kit::connections::persist;
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
    /// left, waits for the confirms, and acknowledges last. `None` when this was abandoned.
    ///
    /// A message whose connection is lost after that comes again, and its jobs leave the same then: it is not published
    /// here, where it would be there twice. What a job leaves that ends later is published at once, as whoever took its
    /// message meanwhile may not have seen how it ended.
    pub(crate) async fn done(&self, parts: impl IntoIterator<Item = (Part, Option<Left>)>) -> Option<()> {
        let (mut messages, mut alone) = (Vec::new(), Vec::new());
        for (part, mut left) in parts {
            if !part.is_usable() {
                alone.extend(left.take());
            }
            messages.extend(part.done(left));
        }
        if !alone.is_empty() || messages.iter().any(|(_, left)| !left.is_empty()) {
            let publish = || async {
                let (now, of_use) = (OffsetDateTime::now_utc(), messages.iter().filter(|(acker, _)| acker.is_usable()));
                let left = alone.iter().chain(of_use.flat_map(|(_, left)| left));
                let left: Vec<_> = left.map(|left| self.message(left, now)).collect();
                self.publisher.publish(&left).await
            };
            persist("publishing what jobs leave", &self.abandon, publish).await?;
        }
        Acker::ack_all(messages.into_iter().map(|(acker, _)| acker).collect()).await;
        Some(())
    }

    fn message(&self, left: &Left, now: OffsetDateTime) -> Outgoing {
        match left {
            Left::Job(job, due) => self.names.job_at(*job, *due, now, &self.schedule),
            Left::Message(message) => message.clone(),
        }
    }
}
