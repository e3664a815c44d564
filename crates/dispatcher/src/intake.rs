//! One batch of jobs: read their deliveries, judge each, begin the attempts.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use broker::{Names, Outgoing, Publisher, Received};
use domain::{DeliveryId, Job, Redelivered, RetrySchedule, Verdict, WebhookId};
use ledger::{Due, Ledger, Standing, UnsealError};
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::{Made, Sender},
    in_flight::InFlight,
    metrics::{Metrics, size},
    parking,
};

/// How long a job waits whose webhook's secret does not open: an operator has to configure the key first.
const UNTIL_KEYS_ARE_THERE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) publisher: Publisher,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    pub(crate) sender: Sender,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) made: mpsc::Sender<Made>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Intake {
    /// Takes a batch; the attempts go on in tasks of their own.
    pub(crate) async fn take(&self, batch: Vec<Received>) {
        self.metrics.read_batch.observe(size(batch.len()));
        let jobs = self.begin(batch).await;
        self.look_up(jobs).await;
    }

    async fn look_up(&self, jobs: Vec<(Job, Redelivered)>) {
        let ids: Vec<_> = jobs.iter().map(|(job, _)| job.delivery).collect();
        if ids.is_empty() {
            return;
        }
        let load = || self.ledger.due_load(&ids);
        let Some(due) = persist("reading deliveries", &self.abandon, load).await else { return };
        let due: HashMap<DeliveryId, Due> = due.into_iter().map(|due| (due.id, due)).collect();
        for (job, redelivered) in jobs {
            self.judge(job, redelivered, due.get(&job.delivery));
        }
    }

    /// Registers the batch's jobs as under way; what is no job is moved aside.
    async fn begin(&self, batch: Vec<Received>) -> Vec<(Job, Redelivered)> {
        let mut jobs = Vec::with_capacity(batch.len());
        for message in batch {
            match Job::parse(&message.body) {
                Ok(job) => {
                    let redelivered = Redelivered::from(message.redelivered);
                    if self.in_flight.begin(job, message.acker, redelivered) {
                        jobs.push((job, redelivered));
                    } else {
                        self.metrics.skipped("twin");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a message that is no job is moved to the dead ones");
                    self.metrics.skipped(error.reason());
                    let dead = [parking::dead(message.body, &error, &self.names)];
                    let publish = || self.publisher.publish(&dead);
                    if persist("moving a dead message", &self.abandon, publish).await.is_some() {
                        message.acker.ack().await;
                    }
                }
            }
        }
        jobs
    }

    fn judge(&self, job: Job, redelivered: Redelivered, due: Option<&Due>) {
        let this = self.clone();
        let Some(due) = due else {
            self.skip(job, "unknown");
            return;
        };
        match due.progress.judge(job, redelivered, OffsetDateTime::now_utc()) {
            Verdict::Stale => self.skip(job, "stale"),
            Verdict::Attempt => {
                let due = due.clone();
                self.tasks.spawn(async move { this.attempt(job, due).await });
            }
            Verdict::Early(at) => {
                self.metrics.skipped("early");
                self.tasks.spawn(async move { this.park(job, at).await });
            }
            Verdict::FollowUp(at) => {
                self.metrics.skipped("follow_up");
                self.tasks.spawn(async move { this.follow_up(job, at).await });
            }
        }
    }

    fn skip(&self, job: Job, reason: &'static str) {
        self.metrics.skipped(reason);
        let this = self.clone();
        self.tasks.spawn(async move { this.pass(job).await });
    }

    /// Acknowledges a job that was not attempted; a twin that came meanwhile is judged by what the ledger says now.
    fn pass(&self, job: Job) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(redelivered) = self.in_flight.pass(job).await {
                self.look_up(vec![(job, redelivered)]).await;
            }
        })
    }

    async fn attempt(&self, job: Job, due: Due) {
        match due.destination.standing {
            Standing::Active => {}
            Standing::Paused => return self.hold(job, due.destination.webhook).await,
            Standing::Deleted => return self.cancel(job).await,
        }
        match self.sender.attempt(job, due).await {
            // The recorder outlives every attempt, unless it was abandoned: then nothing is acknowledged.
            Ok(made) => drop(self.made.send(made).await),
            Err((due, error)) => self.wait_for_keys(job, &due, &error).await,
        }
    }

    /// Leaves the delivery waiting until its webhook is active again; if it is by now, the job comes back at once.
    async fn hold(&self, job: Job, webhook: WebhookId) {
        let hold = || self.ledger.job_hold(webhook, job.delivery);
        match persist("holding a job", &self.abandon, hold).await {
            Some(true) => {
                self.metrics.skipped("held");
                self.pass(job).await;
            }
            Some(false) => self.park(job, OffsetDateTime::now_utc()).await,
            None => {}
        }
    }

    async fn cancel(&self, job: Job) {
        self.metrics.skipped("cancelled");
        let ids = [job.delivery];
        let cancel = || self.ledger.deliveries_cancel(&ids);
        if persist("cancelling a delivery", &self.abandon, cancel).await.is_some() {
            self.in_flight.finish(job).await;
        }
    }

    async fn wait_for_keys(&self, job: Job, due: &Due, error: &UnsealError) {
        let webhook = due.destination.webhook;
        tracing::error!(%webhook, %error, "secrets.keys (WEBHOOKS__SECRETS__KEYS): a signing secret does not open");
        self.metrics.skipped("sealed");
        self.park(job, OffsetDateTime::now_utc() + UNTIL_KEYS_ARE_THERE).await;
    }

    /// Makes a job come back at `due`.
    async fn park(&self, job: Job, due: OffsetDateTime) {
        if self.publish_until(due, job).await.is_some() {
            self.pass(job).await;
        }
    }

    /// Makes the attempt after a job's come at `due`.
    async fn follow_up(&self, job: Job, due: OffsetDateTime) {
        if self.publish_until(due, Job { attempt: job.attempt + 1, ..job }).await.is_some() {
            self.in_flight.finish(job).await;
        }
    }

    async fn publish_until(&self, due: OffsetDateTime, job: Job) -> Option<()> {
        let parked: [Outgoing; 1] = [self.names.job_at(job, due, OffsetDateTime::now_utc(), &self.schedule)];
        persist("parking a job", &self.abandon, || self.publisher.publish(&parked)).await
    }
}
