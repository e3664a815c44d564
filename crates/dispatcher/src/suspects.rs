//! Jobs that may crash the process: noted in the ledger when they begin, and begun one at a time once a note was left behind.

use std::{sync::Arc, time::Duration};

use domain::Job;
use service_kit::connections::persist;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use crate::{dead::Reason, in_flight::Receipt, intake::Intake, lane::Refusal};

/// A job that was handed out so often before is noted when it begins. Most were only waiting each time when their dispatcher
/// stopped or lost its connection: the broker counts that too.
const NOTED_AFTER: u32 = 2;
/// A message that was handed out so often before is taken apart: of its jobs, one may be a suspect.
const APART_AFTER: u32 = NOTED_AFTER + 1;
/// How often a job is begun, at most, that its process did not survive: once in company, which may have ended it as well, and
/// three times alone.
const MOST_TRIES: u16 = 4;
/// A suspect that did no harm for so long is none: the next one may begin.
const HARMLESS_AFTER: Duration = Duration::from_secs(1);

/// Whether a message that was handed out so often before is to be taken apart.
pub(crate) const fn are_to_part(delivery_count: u32) -> bool {
    delivery_count >= APART_AFTER
}

/// What is known against a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing.
    None,
    /// It was begun, and its process died before its end. It may have been another job that was with it.
    Suspect,
}

/// Whose turn it is: one suspect's at a time.
pub(crate) struct Turns(Arc<Semaphore>);

/// The turn of a suspect.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, and given back when dropped")] OwnedSemaphorePermit);

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits for a turn, if the job is a suspect.
    ///
    /// # Errors
    /// When it did not come until `end`.
    pub(crate) async fn wait_for(&self, suspicion: Suspicion, end: Instant) -> Result<Option<Turn>, Refusal> {
        if suspicion == Suspicion::None {
            return Ok(None);
        }
        match timeout_at(end, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Some(Turn(turn))),
            _ => Err(Refusal::Suspects),
        }
    }
}

impl Intake {
    /// What the ledger knows against a job. It is asked only about those that were handed out several times before.
    pub(crate) async fn suspicion(&self, job: Job, receipt: Receipt) -> Option<Suspicion> {
        if receipt.delivery_count < NOTED_AFTER {
            return Some(Suspicion::None);
        }
        let read = || self.ledger.suspect_tries(job.delivery);
        let tries = persist("reading what a job has done", &self.abandon, read).await?;
        Some(if tries == 0 { Suspicion::None } else { Suspicion::Suspect })
    }

    /// Notes in the ledger that a job is begun now that was handed out several times before. The note is deleted when the job
    /// came to its end. That of a suspect is deleted as well, and its turn given back, when it has done no harm for a while.
    /// `None` when it must not be begun: it was buried, or the process stops.
    pub(crate) async fn note(self: &Arc<Self>, job: Job, receipt: Receipt, turn: Option<Turn>) -> Option<()> {
        if receipt.delivery_count < NOTED_AFTER {
            return Some(());
        }
        let mark = || self.ledger.suspect_mark(job.delivery);
        let tries = persist("marking a suspect", &self.abandon, mark).await?;
        if turn.is_some() {
            tracing::warn!(delivery = %job.delivery, attempt = job.attempt, tries, delivery_count = receipt.delivery_count, "a suspect job is begun alone");
        }
        if tries > MOST_TRIES {
            let (before, times) = (tries - 1, receipt.delivery_count);
            let detail =
                format!("handed out {times} times before; its dispatcher died {before} times after it was begun");
            self.undertaker.bury(job, Reason { word: "poison", detail }).await;
            return None;
        }
        let (this, watched) = (Arc::clone(self), self.in_flight.watch(job));
        self.tasks.spawn(async move {
            match &turn {
                Some(_) => drop(timeout(HARMLESS_AFTER, watched.cancelled()).await),
                None => watched.cancelled().await,
            }
            let clear = || this.ledger.suspect_clear(job.delivery);
            persist("clearing a suspect", &this.abandon, clear).await;
            drop(turn);
        });
        Some(())
    }
}
