//! Jobs that may crash the process: begun one at a time, and noted in the ledger before.

use std::{sync::Arc, time::Duration};

use domain::Job;
use service_kit::connections::persist;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};

use crate::{dead::Reason, in_flight::Handed, intake::Intake, lane::Over};

/// A job that was handed out so often before is a suspect: something ends the processes that take it. It may be another
/// job that was with it each time.
const SUSPECT_AFTER: u32 = 3;
/// How often a suspect is begun alone. When its process died with it each time, it was this job.
const MOST_TRIES: u16 = 3;
/// A suspect that did no harm for so long is none: the next one may begin.
const HARMLESS_AFTER: Duration = Duration::from_secs(1);

/// Whether what was handed out so often before are suspects.
pub(crate) const fn are(times: u32) -> bool {
    times >= SUSPECT_AFTER
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
    pub(crate) async fn wait_for(&self, handed: Handed, end: Instant) -> Result<Option<Turn>, Over> {
        if !are(handed.times) {
            return Ok(None);
        }
        match timeout_at(end, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Some(Turn(turn))),
            _ => Err(Over::Suspects),
        }
    }
}

impl Intake {
    /// Notes in the ledger that a suspect is begun now; the note is deleted, and the turn given back, when the job came to
    /// its end or has done no harm for a while. `None` when it must not be begun: it was buried, or the process stops.
    pub(crate) async fn begin_suspect(self: &Arc<Self>, job: Job, handed: Handed, turn: Turn) -> Option<()> {
        let mark = || self.ledger.suspect_mark(job.delivery);
        let tries = persist("marking a suspect", &self.abandon, mark).await?;
        tracing::warn!(delivery = %job.delivery, attempt = job.attempt, tries, handed_out = handed.times, "a suspect job is begun alone");
        if tries > MOST_TRIES {
            let before = tries - 1;
            let times = handed.times;
            let detail =
                format!("handed out {times} times before; begun alone {before} times, each time its dispatcher died");
            self.bury(job, Reason { word: "poison", detail }).await;
            return None;
        }
        let (this, watched) = (Arc::clone(self), self.in_flight.watch(job));
        self.tasks.spawn(async move {
            tokio::select! {
                () = watched.cancelled() => {}
                () = sleep(HARMLESS_AFTER) => {}
            }
            let clear = || this.ledger.suspect_clear(job.delivery);
            persist("clearing a suspect", &this.abandon, clear).await;
            drop(turn);
        });
        Some(())
    }
}
