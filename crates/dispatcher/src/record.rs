//! Records attempt results: one write to the ledger for all that came in, then the retries, then the acknowledgements.

use std::{sync::Arc, time::Duration};

use domain::{DeliveryState, Job, RetrySchedule, Verdict};
use ledger::{Attempted, Ledger, Outcome, Record};
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    alarm::Alarm,
    attempt::AttemptResult,
    dead::Undertaker,
    in_flight::InFlight,
    metrics::{Metrics, size},
    shared_ack::FollowUp,
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
    pub(crate) ledger: Ledger,
    pub(crate) schedule: RetrySchedule,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) undertaker: Undertaker,
    pub(crate) metrics: Metrics,
    pub(crate) abandon: CancellationToken,
    /// Cancelled when this panics: then no job can end.
    pub(crate) broken: CancellationToken,
}

/// What is left to do for a job after the write. A retry's time is what the ledger has now.
enum Recorded {
    /// The job is done. It leaves a retry that is due at a time, or none.
    Done(Job, Option<OffsetDateTime>),
    /// The ledger has no such delivery.
    Unknown(Job),
}

impl Recorder {
    /// Records results until all senders are gone. Returns when all jobs are acknowledged, or this was abandoned.
    pub(crate) async fn run(self, mut results: mpsc::Receiver<AttemptResult>, most: usize) {
        let _alarm = Alarm(self.broken.clone());
        let settling = TaskTracker::new();
        let mut batch = Vec::with_capacity(most);
        // A job keeps its place until it is recorded. Of few places, half are enough.
        let enough = ENOUGH.min(results.max_capacity() / 2);
        while results.recv_many(&mut batch, most).await > 0 {
            let began = Instant::now();
            let Some(recorded) = self.record(std::mem::take(&mut batch)).await else { break };
            // The next batch is written while the retries of this one wait for their confirms.
            let this = self.clone();
            settling.spawn(async move {
                let _alarm = Alarm(this.broken.clone());
                this.settle(recorded).await;
            });
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

    async fn record(&self, batch: Vec<AttemptResult>) -> Option<Vec<Recorded>> {
        self.metrics.write_batch.observe(size(batch.len()));
        let mut attempted = Vec::with_capacity(batch.len());
        for AttemptResult { due, signed_at, answer } in batch {
            let finished_at = answer.started_at + answer.elapsed;
            let progress = due.progress.after(answer.class, answer.started_at, finished_at, &self.schedule);
            attempted.push(Attempted {
                id: due.id,
                webhook: due.destination.webhook,
                progress,
                url: due.destination.url,
                signed_at,
                started_at: answer.started_at,
                elapsed: answer.elapsed,
                class: answer.class,
                status: answer.status,
                answer_head: answer.head,
                error: answer.error,
            });
        }
        let write = || self.ledger.attempts_record(&attempted);
        let outcomes = persist("recording attempts", &self.abandon, write).await?;
        Some(outcomes.into_iter().map(|outcome| self.retry_to_leave(outcome)).collect())
    }

    /// Decides whether this job leaves the retry; when it is due was decided before. If the ledger took this attempt, it
    /// does as long as the delivery waits: it may have been cancelled or resent meanwhile. If another dispatcher
    /// recorded the attempt, that one leaves the retry. But if this message was delivered before, it may be the one
    /// that the other dispatcher has lost: then this job leaves the retry as well.
    fn retry_to_leave(&self, Outcome { id, attempt, record }: Outcome) -> Recorded {
        let (job, now) = (Job { delivery: id, attempt }, OffsetDateTime::now_utc());
        let retry_at = match record {
            Record::Taken { state, next_attempt_at } => {
                self.count(job, state);
                state.is_waiting().then(|| next_attempt_at.unwrap_or(now))
            }
            Record::Superseded(progress) => {
                tracing::debug!(delivery = %id, attempt, "another dispatcher recorded this attempt");
                match progress.judge(job, self.in_flight.redelivered(job), now, &self.schedule) {
                    Verdict::FollowUp(due) => Some(due),
                    _ => None,
                }
            }
            Record::Unknown => return Recorded::Unknown(job),
        };
        Recorded::Done(job, retry_at)
    }

    fn count(&self, job: Job, state: DeliveryState) {
        if state == DeliveryState::Dropped {
            tracing::info!(delivery = %job.delivery, "dropped");
        }
        if !state.is_waiting() {
            self.metrics.finished(state);
        }
    }

    async fn settle(&self, recorded: Vec<Recorded>) {
        let (mut done, mut unknown) = (Vec::with_capacity(recorded.len()), Vec::new());
        for recorded in recorded {
            match recorded {
                Recorded::Done(job, retry_at) => done.push((job, retry_at.map(|due| FollowUp::Retry(job.next(), due)))),
                Recorded::Unknown(job) => unknown.push(job),
            }
        }
        self.in_flight.finish(done).await;
        for job in unknown {
            self.undertaker.unknown(job).await;
        }
    }
}
