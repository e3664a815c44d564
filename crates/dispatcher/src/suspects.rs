//! Suspects: jobs that may crash the process (poison). A job that was delivered several times is noted in the ledger
//! when it begins. A note that is left behind makes it a suspect. Suspects begin one at a time.

use std::{sync::Arc, time::Duration};

use domain::Job;
use service_kit::connections::persist;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use crate::{dead::Reason, in_flight::Receipt, intake::Intake, lane::Refusal};

/// The delivery count from which a job is noted when it begins. Most such jobs are harmless: they only waited when
/// their dispatcher stopped or lost its connection, and the broker counts that too.
const NOTED_AFTER: u32 = 2;
/// The delivery count from which a message of several jobs is taken apart: one of them may be a suspect.
const APART_AFTER: u32 = NOTED_AFTER + 1;
/// How often a job is begun, at most, if its process dies each time: once among others, which may be the cause, and
/// three times alone.
const MOST_TRIES: u16 = 4;
/// A suspect that does no harm for this long is cleared, and the next one may begin.
const HARMLESS_AFTER: Duration = Duration::from_secs(1);

/// Whether a message of several jobs is to be taken apart.
pub(crate) const fn must_be_split(delivery_count: u32) -> bool {
    delivery_count >= APART_AFTER
}

/// Whether a job is a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing is known against it.
    None,
    /// It was begun and has not ended. Its process may have died, of this job or of another one.
    Suspect,
}

/// Gives suspects their turns to begin, one at a time.
pub(crate) struct Turns(Arc<Semaphore>);

pub(crate) struct Turn(#[expect(dead_code, reason = "held, and given back when dropped")] OwnedSemaphorePermit);

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits for a turn, if the job is a suspect.
    ///
    /// # Errors
    /// [`Refusal::Suspects`] when it does not come until `end`.
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
    /// Asks the ledger whether a job is a suspect, if it was delivered several times before.
    pub(crate) async fn suspicion(&self, job: Job, receipt: Receipt) -> Option<Suspicion> {
        if receipt.delivery_count < NOTED_AFTER {
            return Some(Suspicion::None);
        }
        let read = || self.ledger.suspect_tries(job.delivery);
        let tries = persist("reading what a job has done", &self.abandon, read).await?;
        Some(if tries == 0 { Suspicion::None } else { Suspicion::Suspect })
    }

    /// Notes in the ledger that a job begins, if it was delivered several times before. Deletes the note when the job
    /// ends. Deletes a suspect's note and gives its turn back after [`HARMLESS_AFTER`] at the latest. Returns `None`
    /// when the job must not begin: it was parked, or this was abandoned.
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
