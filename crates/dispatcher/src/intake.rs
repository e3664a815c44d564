//! Takes a batch of jobs: reads their deliveries, judges each, starts the attempts.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
};

use broker::{Acker, Names, Outgoing, Received};
use domain::{DeliveryId, Job, RetrySchedule, Verdict};
use futures_util::FutureExt;
use ledger::{Due, Ledger, Loaded};
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::{AttemptResult, Sender},
    dead::{Reason, Undertaker},
    in_flight::{InFlight, Message, Receipt},
    lane::{Lane, LaneKind, Slots},
    metrics::{Metrics, size},
    mover::Move,
    shared_ack::{FollowUp, Origin, SharedAck},
    stamps::Stamps,
    suspects::{self, Turns},
};

/// Takes the jobs of all lanes. Each job runs in a task of its own.
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    pub(crate) sender: Sender,
    pub(crate) lanes: Lanes,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) turns: Turns,
    pub(crate) undertaker: Undertaker,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) results: mpsc::Sender<AttemptResult>,
    pub(crate) moves: mpsc::Sender<Move>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    /// How many deliveries are read at once, at most.
    pub(crate) most: usize,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

pub(crate) struct Lanes {
    main: Lane,
    bulk: Lane,
    slow: Lane,
}

impl Lanes {
    pub(crate) fn new(main: Slots, slow: Slots) -> Self {
        let main = Lane::new(LaneKind::Main, main);
        Self { bulk: Lane::bulk_of(&main), main, slow: Lane::new(LaneKind::Slow, slow) }
    }

    pub(crate) const fn of(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Main => &self.main,
            LaneKind::Bulk => &self.bulk,
            LaneKind::Slow => &self.slow,
        }
    }
}

impl Intake {
    /// Takes a batch of a lane. Waits for places for its jobs (backpressure). Attempts run in tasks of their own.
    pub(crate) async fn take(self: &Arc<Self>, kind: LaneKind, batch: Vec<Received>) {
        let mut waiting = self.open(kind, batch);
        while !waiting.is_empty() {
            let places = self.lanes.of(kind).places(waiting.len().min(self.most)).await;
            let mut begun = Vec::with_capacity(places.len());
            for ((job, ack, receipt), place) in waiting.drain(..places.len()).zip(places) {
                // Skips a job whose connection is lost: the broker redelivers its message.
                if !ack.is_usable() {
                    continue;
                }
                if self.in_flight.begin(job, Message { ack, receipt, place }) {
                    begun.push((job, receipt));
                } else {
                    self.metrics.skipped("duplicate");
                }
            }
            self.look_up(begun).await;
        }
    }

    async fn look_up(self: &Arc<Self>, jobs: Vec<(Job, Receipt)>) {
        let ids: Vec<_> = jobs.iter().map(|(job, _)| job.delivery).collect();
        if ids.is_empty() {
            return;
        }
        self.metrics.read_batch.observe(size(ids.len()));
        let load = || self.ledger.due_load(&ids);
        let Some(Loaded { due, unreadable }) = persist("reading deliveries", &self.abandon, load).await else { return };
        let due: HashMap<DeliveryId, Due> = due.into_iter().map(|due| (due.id, due)).collect();
        let unreadable: HashMap<_, _> = unreadable.into_iter().map(|one| (one.id, one.column)).collect();
        if self.stamp(&jobs, &due).await.is_none() {
            return;
        }
        for (job, receipt) in jobs {
            match (due.get(&job.delivery), unreadable.get(&job.delivery)) {
                (Some(due), _) => self.judge(job, receipt, due),
                (None, Some(column)) => {
                    let detail = format!("this version cannot read {column}");
                    self.spawn(job, |this| async move {
                        this.undertaker.bury(job, Reason { word: "unreadable", detail }).await;
                    });
                }
                (None, None) => self.spawn(job, |this| async move { this.undertaker.unknown(job).await }),
            }
        }
    }

    /// Stamps the webhooks of jobs from the slow lane: more of their jobs may be in it.
    async fn stamp(&self, jobs: &[(Job, Receipt)], due: &HashMap<DeliveryId, Due>) -> Option<()> {
        let of_slow = |(job, receipt): &(Job, Receipt)| match receipt.lane {
            LaneKind::Slow => Some(due.get(&job.delivery)?.destination.webhook),
            LaneKind::Main | LaneKind::Bulk => None,
        };
        let webhooks: Vec<_> = jobs.iter().filter_map(of_slow).collect();
        persist("stamping webhooks", &self.abandon, || self.stamps.set(&self.ledger, &webhooks)).await
    }

    /// Reads the jobs of messages. Parks a message that holds none. Takes apart one that was delivered too often. Hands
    /// what a job of the bulk lane has left on to that lane: every retry queue expires into the main one.
    fn open(&self, lane: LaneKind, batch: Vec<Received>) -> VecDeque<(Job, SharedAck, Receipt)> {
        let (mut opened, mut replaced, mut to_bulk) = (VecDeque::with_capacity(batch.len()), Vec::new(), 0);
        for Received { body, acker, delivery_count, is_of_bulk, .. } in batch {
            let origin = if is_of_bulk || lane == LaneKind::Bulk { Origin::Bulk } else { Origin::Other };
            if is_of_bulk && lane == LaneKind::Main {
                let there = Outgoing { queue: self.names.bulk(), body, ..Outgoing::default() };
                replaced.push((acker, origin, vec![there.carrying(delivery_count)]));
                to_bulk += 1;
                continue;
            }
            match Job::parse(&body) {
                Ok(jobs) if jobs.len() > 1 && suspects::must_be_split(delivery_count) => {
                    let alone = |job| {
                        Outgoing { queue: lane.queue(&self.names), ..self.names.job(job) }.carrying(delivery_count)
                    };
                    replaced.push((acker, origin, jobs.into_iter().map(alone).collect()));
                }
                Ok(jobs) => {
                    let receipt = Receipt { lane, delivery_count };
                    let acks = SharedAck::of(acker, origin, jobs.len());
                    opened.extend(jobs.into_iter().zip(acks).map(|(job, ack)| (job, ack, receipt)));
                }
                Err(error) => {
                    tracing::error!(%error, "a message that is no job is moved to the dead ones");
                    self.metrics.skipped(error.reason());
                    let reason = Reason { word: error.reason(), detail: error.to_string() };
                    replaced.push((acker, origin, vec![reason.message(body, &self.names)]));
                }
            }
        }
        self.replace(replaced, to_bulk);
        opened
    }

    /// Publishes other messages in place of each, then acknowledges it. If its connection is lost, publishes nothing: the
    /// broker redelivers it. Runs in a task of its own, as a queue may refuse. Counts `to_bulk` of them as handed on.
    fn replace(&self, replaced: Vec<(Acker, Origin, Vec<Outgoing>)>, to_bulk: u64) {
        if replaced.is_empty() {
            return;
        }
        let (finisher, handed_on) = (self.in_flight.finisher().clone(), self.metrics.moved_to_bulk.clone());
        let done = replaced.into_iter().flat_map(|(acker, origin, others)| {
            let acks = SharedAck::of(acker, origin, others.len());
            acks.into_iter().zip(others.into_iter().map(|other| Some(FollowUp::Message(other))))
        });
        let done: Vec<_> = done.collect();
        self.tasks.spawn(async move {
            if finisher.done(done).await.is_some() {
                handed_on.inc_by(to_bulk);
            }
        });
    }

    fn judge(self: &Arc<Self>, job: Job, receipt: Receipt, due: &Due) {
        match due.progress.judge(job, receipt.redelivered(), OffsetDateTime::now_utc(), &self.schedule) {
            Verdict::Stale => self.skip(job, "stale"),
            Verdict::Attempt => {
                let due = due.clone();
                self.spawn(job, |this| async move { this.attempt(job, receipt, due).await });
            }
            Verdict::Early(at) => {
                self.metrics.skipped("early");
                self.spawn(job, move |this| async move { this.come_again(job, at).await });
            }
            Verdict::FollowUp(at) => {
                self.metrics.skipped("follow_up");
                self.spawn(job, move |this| async move { this.follow_up(job, at).await });
            }
        }
    }

    /// Looks a job up and judges it again.
    pub(crate) fn judge_again(self: &Arc<Self>, job: Job, receipt: Receipt) {
        self.spawn(job, |this| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move { this.look_up(vec![(job, receipt)]).await })
        });
    }

    pub(crate) fn skip(self: &Arc<Self>, job: Job, reason: &'static str) {
        self.metrics.skipped(reason);
        self.spawn(job, |this| async move { this.pass(job, None).await });
    }

    /// Does a job's work in a task of its own. A panic there parks only this job. (A panic in what all jobs share ends
    /// the process.)
    fn spawn<F>(self: &Arc<Self>, job: Job, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // An attempt's state is several KiB. In a box, it is not copied again and again on its way into the task.
        let (work, this) = (Box::pin(work(Arc::clone(self))), Arc::clone(self));
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!(delivery = %job.delivery, attempt = job.attempt, "a job's task panicked");
                let detail = "its task panicked: the dispatcher's log says where".to_owned();
                this.undertaker.bury(job, Reason { word: "panicked", detail }).await;
            }
        });
    }

    /// Ends a job that was not attempted. Looks up and judges a duplicate that came meanwhile.
    pub(crate) fn pass(
        self: &Arc<Self>,
        job: Job,
        follow_up: Option<FollowUp>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(receipt) = self.in_flight.pass(job, follow_up).await {
                self.look_up(vec![(job, receipt)]).await;
            }
        })
    }
}
