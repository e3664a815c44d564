//! Records attempt results: one write to the ledger for all that came in, then the retries, then the acknowledgements.

use std::{sync::Arc, time::Duration};

use domain::{DeliveryState, Record, Redelivered, Traceparent};
use ledger::Attempted;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;

use crate::{
    line::{
        in_flight::UnderWay,
        outcome::{Abandoned, DeadReason, End},
        settle::Settler,
    },
    metrics::size,
};

/// The pause after a write. Nobody waits for a result, and a write of two costs hardly more than a write of one. A
/// result that is lost with the process meanwhile costs another attempt.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// The number of results that is worth a write. While there are fewer, there is another pause.
const MIN_BATCH_RESULTS: usize = 64;
/// No pause begins later than this after the write began.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(60);

/// A job with its attempt, to be recorded.
pub(crate) type Made = (UnderWay, Attempted);

#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) settler: Arc<Settler>,
}

impl Recorder {
    /// Records results until all senders are gone. Returns when all jobs are acknowledged, or this was abandoned.
    pub(crate) async fn run(self, mut results: mpsc::Receiver<Made>, most: usize) {
        let settling = TaskTracker::new();
        let mut batch = Vec::with_capacity(most);
        // A job keeps its place until it is recorded. Of few places, half are enough.
        let enough = MIN_BATCH_RESULTS.min(results.max_capacity() / 2);
        while results.recv_many(&mut batch, most).await > 0 {
            let began = Instant::now();
            let (jobs, attempts): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
            let Settler { context, .. } = &*self.settler;
            context.metrics.write_batch.observe(size(attempts.len()));
            let write = context.in_halves("recording attempts", &attempts, |part| context.ledger.attempts_record(part));
            let Ok(records) = write.await else { break };
            let mut ends = Vec::with_capacity(jobs.len());
            for ((job, attempted), record) in jobs.into_iter().zip(attempts).zip(records) {
                match record.and_then(|record| self.end_of(&job, &attempted, record)) {
                    Some(end) => ends.push((job, end)),
                    None => drop(settling.spawn(self.clone().record_alone(job, attempted))),
                }
            }
            // The next batch is written meanwhile.
            let recorder = self.clone();
            settling.spawn(async move {
                let _watched = recorder.settler.context.essential.watch("settling");
                // No job continues: its duplicates end with it.
                recorder.settler.end_all(ends).await;
            });
            while began.elapsed() < MAX_BATCH_DELAY {
                sleep(BATCH_PAUSE).await;
                if results.len() >= enough {
                    break;
                }
            }
        }
        settling.close();
        settling.wait().await;
    }

    /// Records an attempt once more that could not be recorded, or parks its job: the attempt must not be made again. If the
    /// ledger does not have its delivery, finds out why.
    async fn record_alone(self, job: UnderWay, attempted: Attempted) {
        let _watched = self.settler.context.essential.watch("recording");
        let batch = [attempted];
        let write = || self.settler.context.ledger.attempts_record(&batch);
        let recorded = match self.settler.context.alone("recording an attempt", write).await {
            Ok(Ok(records)) => records.first().and_then(|record| self.end_of(&job, &batch[0], *record)),
            Ok(Err(fault)) => Some(End::Dead(DeadReason::Unrecorded(fault))),
            Err(Abandoned) => return,
        };
        let end = match recorded {
            Some(end) => end,
            None => match self.settler.end_of_unknown(job.job()).await {
                Ok(end) => end,
                Err(Abandoned) => return,
            },
        };
        self.settler.end_all(vec![(job, end)]).await;
    }

    /// The end of a recorded job, or none if the ledger does not have the delivery. (`attempt.rs` has asked
    /// `Progress::after_attempt` when the retry is due.)
    fn end_of(&self, job: &UnderWay, attempted: &Attempted, record: Record) -> Option<End> {
        match record {
            Record::Taken { state, .. } if !state.is_waiting() => {
                if state == DeliveryState::Dropped {
                    let traceparent = attempted.traceparent.as_ref().map(Traceparent::as_str);
                    tracing::info!(delivery = %attempted.id, traceparent, "dropped");
                }
                self.settler.context.metrics.count_finished(state);
            }
            Record::Taken { .. } => {}
            Record::Superseded(_) => {
                let attempt = job.job().attempt;
                tracing::debug!(delivery = %attempted.id, attempt, "another dispatcher recorded this attempt");
            }
            Record::Unknown => return None,
        }
        let (redelivered, context) = (Redelivered::from(job.delivery_count() > 0), &self.settler.context);
        let retry = record.retry(job.job(), redelivered, context.database.now(), &context.schedule);
        Some(retry.map_or(End::Done, End::Retry))
    }
}
