//! Records attempt results: one write to the ledger for all that came in, then the retries, then the acknowledgements.

use std::{sync::Arc, time::Duration};

use domain::{DeliveryState, Job, Traceparent, Verdict};
use ledger::{Attempted, Record, Recorded};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;

use crate::{
    abandoned::Abandoned,
    end::{DeadReason, End},
    metrics::size,
    settle::Settler,
    shared::Shared,
};

/// The pause after a write. Nobody waits for a result, and a write of two costs hardly more than a write of one. A
/// result that is lost with the process meanwhile costs another attempt.
const PACE: Duration = Duration::from_millis(20);
/// How many results are worth a write. While there are fewer, there is another pause.
const ENOUGH: usize = 64;
/// No pause begins later than this after the write began.
const LONGEST: Duration = Duration::from_millis(60);

#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settler: Arc<Settler>,
}

impl Recorder {
    /// Records results until all senders are gone. Returns when all jobs are acknowledged, or this was abandoned.
    pub(crate) async fn run(self, mut results: mpsc::Receiver<Attempted>, most: usize) {
        let settling = TaskTracker::new();
        let mut batch = Vec::with_capacity(most);
        // A job keeps its place until it is recorded. Of few places, half are enough.
        let enough = ENOUGH.min(results.max_capacity() / 2);
        while results.recv_many(&mut batch, most).await > 0 {
            let began = Instant::now();
            let Ok(ends) = self.record(&batch, &settling).await else { break };
            batch.clear();
            self.settle(&settling, ends);
            while began.elapsed() < LONGEST {
                sleep(PACE).await;
                if results.len() >= enough {
                    break;
                }
            }
        }
        settling.close();
        settling.wait().await;
    }

    /// Records an attempt once more that could not be recorded, or parks its job.
    async fn record_alone(&self, one: Attempted) {
        let (job, batch) = (Job { delivery: one.id, attempt: one.progress.attempts }, [one]);
        let write = || self.shared.ledger.attempts_record(&batch);
        let ends = match self.shared.alone("recording an attempt", write).await {
            Ok(Ok(recorded)) => recorded.into_iter().map(|one| self.end_of(one, &batch)).collect(),
            Ok(Err(fault)) => vec![(job, End::Dead(DeadReason::Unrecorded(fault)))],
            Err(Abandoned) => return,
        };
        end_recorded(&self.settler, ends).await;
    }

    /// Acts on ends while the next batch is written.
    fn settle(&self, settling: &TaskTracker, ends: Vec<(Job, End)>) {
        let (shared, settler) = (Arc::clone(&self.shared), Arc::clone(&self.settler));
        settling.spawn(async move {
            let _watched = shared.essential.watch("settling");
            end_recorded(&settler, ends).await;
        });
    }

    /// Records attempts. One that cannot be recorded is tried alone, and parked: it must not be made again.
    async fn record(&self, batch: &[Attempted], settling: &TaskTracker) -> Result<Vec<(Job, End)>, Abandoned> {
        self.shared.metrics.write_batch.observe(size(batch.len()));
        let ledger = &self.shared.ledger;
        let written = self.shared.in_halves("recording attempts", batch, |part| ledger.attempts_record(part));
        let (recorded, faulty) = written.await?;
        for one in faulty {
            let (recorder, one) = (self.clone(), one.clone());
            settling.spawn(async move {
                let _watched = recorder.shared.essential.watch("recording");
                recorder.record_alone(one).await;
            });
        }
        Ok(recorded.into_iter().flatten().map(|one| self.end_of(one, batch)).collect())
    }

    /// Decides whether this job publishes the retry. (`attempt.rs` has asked `Progress::after_attempt` when that is
    /// due.) If the ledger took this attempt, it does as long as the delivery waits: it may have been cancelled or
    /// resent meanwhile. If another dispatcher recorded the attempt, that one publishes the retry. If this message was
    /// handed out before, this job publishes it as well: the other dispatcher may have lost its connection, and then
    /// publishes nothing.
    fn end_of(&self, Recorded { id, attempt, record }: Recorded, batch: &[Attempted]) -> (Job, End) {
        let (job, now) = (Job { delivery: id, attempt }, self.shared.database.now());
        let end = match record {
            Record::Taken { state, next_attempt_at } if state.is_waiting() => {
                End::Retry(next_attempt_at.unwrap_or(now))
            }
            Record::Taken { state, .. } => {
                self.count(job, state, batch);
                End::Done
            }
            Record::Superseded(progress) => {
                tracing::debug!(delivery = %id, attempt, "another dispatcher recorded this attempt");
                match progress.judge(job, self.shared.in_flight.redelivered(job), now, &self.shared.schedule) {
                    Verdict::PublishRetry(due) => End::Retry(due),
                    _ => End::Done,
                }
            }
            Record::Unknown => End::Unknown,
        };
        (job, end)
    }

    fn count(&self, job: Job, state: DeliveryState, batch: &[Attempted]) {
        if state == DeliveryState::Dropped {
            let trace = attempted(job, batch).and_then(|one| one.traceparent.as_ref());
            tracing::info!(delivery = %job.delivery, traceparent = trace.map(Traceparent::as_str), "dropped");
        }
        self.shared.metrics.finished(state);
    }
}

/// The attempt of a job.
fn attempted(job: Job, batch: &[Attempted]) -> Option<&Attempted> {
    batch.iter().find(|one| one.id == job.delivery)
}

/// Jobs of unknown deliveries come last, one by one: each may wait for the ledger.
async fn end_recorded(settler: &Settler, ends: Vec<(Job, End)>) {
    let (unknown, recorded): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(_, end)| matches!(end, End::Unknown));
    settler.end_all(recorded).await;
    for unknown in unknown {
        settler.end_all(vec![unknown]).await;
    }
}
