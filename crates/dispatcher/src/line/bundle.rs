//! Bundles: messages that hold several jobs, and share one acknowledgement. A message is acknowledged when all its jobs are
//! done. Their follow-ups are published just before that. If this process dies earlier, the message is redelivered
//! unchanged, and no follow-up exists twice. A retry waits for the slowest job of its message before it is published,
//! and can be late by that, as others are ahead of it on its retry queue by then.

use std::sync::Arc;

use broker::{Acker, Outgoing};
use domain::Job;
use parking_lot::Mutex;

use crate::line::outcome::End;

/// A job's part of the acknowledgement of its message. A dropped part is never done, so its message is redelivered.
pub(crate) struct JobAck(Arc<Mutex<Bundle>>);

/// The lane that the jobs of a message belong to. What jobs of the bulk lane leave is marked, so that retries take it, too.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    Bulk,
    Other,
}

/// A message, until all its jobs are done.
struct Bundle {
    /// Taken when the last part is done.
    acker: Option<Acker>,
    origin: Origin,
    undone: usize,
    follow_ups: Vec<FollowUp>,
}

impl Origin {
    /// Marks a message that a job of this origin leaves.
    pub(crate) fn marked(self, message: Outgoing) -> Outgoing {
        match self {
            Self::Bulk => message.of_bulk(),
            Self::Other => message,
        }
    }
}

/// A message that is published before a message is acknowledged.
pub(crate) enum FollowUp {
    /// It is made of a job and its end.
    Of(Job, End),
    /// It takes the message's place.
    Message(Outgoing),
}

impl JobAck {
    /// The parts of a message, one for each job.
    pub(crate) fn of(acker: Acker, origin: Origin, jobs: usize) -> Vec<Self> {
        let bundle = Bundle { acker: Some(acker), origin, undone: jobs, follow_ups: Vec::new() };
        let bundle = Arc::new(Mutex::new(bundle));
        (0..jobs).map(|_| Self(Arc::clone(&bundle))).collect()
    }

    #[cfg(test)]
    pub(crate) fn lost() -> Self {
        let bundle = Bundle { acker: None, origin: Origin::Other, undone: 1, follow_ups: Vec::new() };
        Self(Arc::new(Mutex::new(bundle)))
    }

    /// Whether the message can still be acknowledged.
    pub(crate) fn is_usable(&self) -> bool {
        self.0.lock().acker.as_ref().is_some_and(Acker::is_usable)
    }

    /// Gives a job's follow-up to one of its parts. It has a part in its own message and in each duplicate's. The first
    /// whose message can still be acknowledged gets it: a message that cannot does not publish its follow-ups.
    pub(crate) fn attach_follow_up(
        parts: Vec<Self>,
        mut follow_up: Option<FollowUp>,
    ) -> impl Iterator<Item = (Self, Option<FollowUp>)> {
        let chosen = follow_up.as_ref().and_then(|_| parts.iter().position(Self::is_usable)).unwrap_or_default();
        let parts = parts.into_iter().enumerate();
        parts.map(move |(at, part)| (part, if at == chosen { follow_up.take() } else { None }))
    }

    /// Notes that the job is done. The last part of a message returns the right to acknowledge it, and all its
    /// follow-ups.
    pub(crate) fn done(self, follow_up: Option<FollowUp>) -> Option<(Acker, Origin, Vec<FollowUp>)> {
        let mut bundle = self.0.lock();
        bundle.follow_ups.extend(follow_up);
        bundle.undone -= 1;
        if bundle.undone > 0 {
            return None;
        }
        Some((bundle.acker.take()?, bundle.origin, std::mem::take(&mut bundle.follow_ups)))
    }
}
