//! Suspects: jobs that may crash the process (poison). A job that the broker delivered several times is noted in the ledger
//! when it begins. A note that is left behind makes it a suspect. Suspects begin one at a time.

use std::{sync::Arc, time::Duration};

use domain::{Job, WebhookId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    lane::{
        admission::ADMISSION_TIMEOUT,
        refusal::{Hold, OTHER_RELEASE, Refusal},
    },
    line::{
        context::LineContext,
        in_flight::UnderWay,
        outcome::{DeadReason, End, Stop},
    },
};

/// The number of earlier deliveries from which on a job is noted when it begins. Most such jobs are harmless: they only waited
/// when their dispatcher stopped or lost its connection, and the broker counts that too.
const MIN_DELIVERIES_TO_NOTE: u32 = 2;
/// The maximum number of times that a job is begun if its process dies each time: once among others, which may be the cause, and
/// three times alone. With the deliveries before the first note, a poisonous job ends six processes at most.
const MAX_TRIES: u16 = 4;
/// A suspect that does no harm for this long is cleared, and the next one may begin.
const HARMLESS_AFTER: Duration = Duration::from_secs(1);

/// Returns true if a message of several jobs is to be taken apart: one of them may be a suspect.
pub(crate) const fn must_be_split(delivery_count: u32) -> bool {
    delivery_count >= MIN_DELIVERIES_TO_NOTE
}

pub(crate) struct Suspects {
    context: Arc<LineContext>,
    /// One permit: suspects begin one at a time.
    turns: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// A suspect's turn to begin. Dropping it gives it back.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Suspects {
    /// Notes are deleted by `tasks`.
    pub(crate) fn new(context: Arc<LineContext>, tasks: TaskTracker) -> Self {
        Self { context, turns: Arc::new(Semaphore::new(1)), tasks }
    }

    /// The number of times that a job was begun and has not ended, if the broker delivered it several times before. If it ever was, it is a
    /// suspect: its process may have died, of this job or of another one.
    ///
    /// # Errors
    /// When its attempt was made and could not be recorded: it was being parked when the broker delivered its message again.
    pub(crate) async fn tries(&self, job: &UnderWay) -> Result<u16, Stop> {
        let delivery_count = job.receipt().delivery_count;
        if delivery_count == 0 {
            return Ok(0);
        }
        let read = || self.context.ledger.suspect_tries(job.job().delivery);
        let (tries, is_unrecorded) = self.context.until_done("reading what a job has done", read).await?;
        if is_unrecorded {
            let fault = "the broker delivered its message again meanwhile".to_owned();
            return Err(End::Dead(DeadReason::Unrecorded(fault)).into());
        }
        Ok(if delivery_count < MIN_DELIVERIES_TO_NOTE { 0 } else { tries })
    }

    /// Waits for a turn, if the job is a suspect.
    ///
    /// # Errors
    /// [`Refusal::Suspects`] when it does not come soon.
    pub(crate) async fn turn(&self, tries: u16, webhook: WebhookId) -> Result<Option<Turn>, Hold> {
        if tries == 0 {
            return Ok(None);
        }
        match timeout(ADMISSION_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            _ => Err(Hold { webhook, refusal: Refusal::Suspects, release: Some(OTHER_RELEASE) }),
        }
    }

    /// Notes in the ledger that a job begins, if the broker delivered it several times before. It was begun `tries` times
    /// already. Deletes the note when the job ends, a suspect's after [`HARMLESS_AFTER`] if that is sooner, and gives
    /// its turn back then. If the process dies before, after the outcome is recorded, the note stays for a day and is
    /// not asked for.
    ///
    /// # Errors
    /// [`DeadReason::Poison`] when it was begun too often.
    pub(crate) async fn note(&self, job: &mut UnderWay, tries: u16, turn: Option<Turn>) -> Result<(), Stop> {
        let delivery_count = job.receipt().delivery_count;
        if delivery_count < MIN_DELIVERIES_TO_NOTE {
            return Ok(());
        }
        let Job { delivery, attempt } = job.job();
        let mark = || self.context.ledger.suspect_mark(delivery, tries + 1);
        let tries = self.context.until_done("marking a suspect", mark).await?;
        if turn.is_some() {
            tracing::warn!(%delivery, attempt, tries, delivery_count, "a suspect job is begun alone");
        }
        if tries > MAX_TRIES {
            return Err(End::Dead(DeadReason::Poison { delivery_count, deaths: tries - 1 }).into());
        }
        let (context, watched) = (Arc::clone(&self.context), job.watch());
        self.tasks.spawn(async move {
            match &turn {
                Some(_) => drop(timeout(HARMLESS_AFTER, watched.cancelled()).await),
                None => watched.cancelled().await,
            }
            let _ = context.until_done("clearing a suspect", || context.ledger.suspect_clear(delivery)).await;
            drop(turn);
        });
        Ok(())
    }
}
