//! Outcomes: one write to the ledger for all that have come in, then the retries, then the acknowledgements.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{DeliveryState, Job, RetrySchedule};
use ledger::{Attempted, Ledger, Outcome};
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    alarm::Alarm,
    attempt::Made,
    in_flight::InFlight,
    metrics::{Metrics, size},
    parts::Left,
};

/// The pause after a write. Nobody waits for an outcome, and a write of two costs hardly more than one of
/// a single outcome; what is lost with the process in between is sent once more.
const PACE: Duration = Duration::from_millis(20);
/// Outcomes that are worth a write. While there are fewer there is another pause, until so long after the write before began.
const ENOUGH: usize = 64;
const LONGEST: Duration = Duration::from_millis(60);

#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) ledger: Ledger,
    pub(crate) schedule: RetrySchedule,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Metrics,
    pub(crate) abandon: CancellationToken,
    /// Cancelled when this panicked: no job can come to its end any more.
    pub(crate) broken: CancellationToken,
}

/// What remains to be done for a job once its outcome is in the ledger. The ledger has the last word on the retry: the
/// delivery may have been cancelled or resent meanwhile.
struct Recorded {
    job: Job,
    retry_at: Option<OffsetDateTime>,
}

impl Recorder {
    /// Records outcomes until no more can come, and every retry is published and every job acknowledged.
    pub(crate) async fn run(self, mut made: mpsc::Receiver<Made>, most: usize) {
        let _alarm = Alarm(self.broken.clone());
        let settling = TaskTracker::new();
        let mut batch = Vec::with_capacity(most);
        // Few places are soon full of what waits to be written.
        let enough = ENOUGH.min(made.max_capacity() / 2);
        while made.recv_many(&mut batch, most).await > 0 {
            let began = Instant::now();
            let Some(recorded) = self.record(std::mem::take(&mut batch)).await else { break };
            // The next batch is written while this one's retries wait for their confirms.
            let this = self.clone();
            settling.spawn(async move {
                let _alarm = Alarm(this.broken.clone());
                this.settle(recorded).await;
            });
            while began.elapsed() < LONGEST {
                sleep(PACE).await;
                if made.len() >= enough {
                    break;
                }
            }
        }
        settling.close();
        settling.wait().await;
    }

    async fn record(&self, batch: Vec<Made>) -> Option<Vec<Recorded>> {
        self.metrics.write_batch.observe(size(batch.len()));
        let (mut attempted, mut recorded) = (Vec::new(), Vec::new());
        for Made { job, due, signature, answer } in batch {
            let finished_at = answer.started_at + answer.elapsed;
            let progress = due.progress.after(answer.class, answer.started_at, finished_at, &self.schedule);
            recorded.push(Recorded { job, retry_at: progress.next_attempt_at });
            attempted.push(Attempted {
                id: due.id,
                webhook: due.destination.webhook,
                progress,
                url: due.destination.url,
                signature,
                started_at: answer.started_at,
                elapsed: answer.elapsed,
                class: answer.class,
                status: answer.status,
                answer_head: answer.head,
                error: answer.error,
            });
        }
        let mut places = HashMap::with_capacity(recorded.len());
        for (place, Recorded { job, .. }) in recorded.iter().enumerate() {
            places.entry(job.delivery).or_insert(place);
        }
        let write = || self.ledger.attempts_record(&attempted);
        for Outcome { id, state, next_attempt_at } in persist("recording attempts", &self.abandon, write).await? {
            if let Some(recorded) = places.get(&id).and_then(|place| recorded.get_mut(*place)) {
                recorded.retry_at = state.is_waiting().then(|| next_attempt_at.unwrap_or_else(OffsetDateTime::now_utc));
            }
            if state == DeliveryState::Dropped {
                tracing::info!(delivery = %id, "dropped");
            }
            if !state.is_waiting() {
                self.metrics.finished(state);
            }
        }
        Some(recorded)
    }

    /// The retries, even of attempts that the ledger did not expect: perhaps it was this very call that had recorded them
    /// before its answer got lost. A retry too many is stale when it comes.
    async fn settle(&self, recorded: Vec<Recorded>) {
        let done = |Recorded { job, retry_at }| (job, retry_at.map(|due| Left::Job(job.next(), due)));
        self.in_flight.finish(recorded.into_iter().map(done)).await;
    }
}
