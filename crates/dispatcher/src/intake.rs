//! One batch of jobs: read their deliveries, judge each, begin the attempts.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::Instant,
};

use broker::{Acker, Names, Outgoing, Received};
use domain::{DeliveryId, Job, Redelivered, RetrySchedule, TenantId, Verdict};
use futures_util::FutureExt;
use ledger::{Due, Ledger, Loaded};
use service_kit::{Flood, connections::persist};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::{Made, Sender},
    dead::{Reason, Undertaker},
    in_flight::{Handed, InFlight, Message},
    lane::{Lane, Slots, Which},
    metrics::{Metrics, size},
    mover::Move,
    parts::{Left, Part},
    stamps::Stamps,
    suspects::{self, Turns},
};

/// What the jobs of all lanes go through; each job in a task of its own.
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) schedule: RetrySchedule,
    pub(crate) sender: Sender,
    pub(crate) lanes: Lanes,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) turns: Turns,
    pub(crate) flood: Flood,
    pub(crate) undertaker: Undertaker,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) made: mpsc::Sender<Made>,
    pub(crate) moves: mpsc::Sender<Move>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    /// How many deliveries are read at a time.
    pub(crate) most: usize,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

/// All lanes.
pub(crate) struct Lanes {
    main: Lane,
    bulk: Lane,
    slow: Lane,
}

impl Lanes {
    pub(crate) fn new(main: Slots, slow: Slots) -> Self {
        let main = Lane::new(Which::Main, main);
        Self { bulk: Lane::bulk_of(&main), main, slow: Lane::new(Which::Slow, slow) }
    }

    pub(crate) const fn of(&self, which: Which) -> &Lane {
        match which {
            Which::Main => &self.main,
            Which::Bulk => &self.bulk,
            Which::Slow => &self.slow,
        }
    }
}

impl Intake {
    /// Takes a batch of a lane, as there are places for its jobs; the attempts go on in tasks of their own.
    pub(crate) async fn take(self: &Arc<Self>, which: Which, batch: Vec<Received>) {
        let mut waiting = self.open(which, batch);
        while !waiting.is_empty() {
            let places = self.lanes.of(which).places(waiting.len().min(self.most)).await;
            let mut begun = Vec::with_capacity(places.len());
            for ((job, part, handed), place) in waiting.drain(..places.len()).zip(places) {
                // What a connection had handed out that was lost meanwhile comes again.
                if !part.is_usable() {
                    continue;
                }
                if self.in_flight.begin(job, Message { part, handed, place }) {
                    begun.push((job, handed));
                } else {
                    self.metrics.skipped("twin");
                }
            }
            self.look_up(begun).await;
        }
    }

    async fn look_up(self: &Arc<Self>, jobs: Vec<(Job, Handed)>) {
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
        let (flooding, mut to_bulk) = (self.flooding(&jobs, &due), Vec::new());
        for (job, handed) in jobs {
            match (due.get(&job.delivery), unreadable.get(&job.delivery)) {
                (Some(due), _) if of_flood(job, handed, &flooding, due) => to_bulk.push(job),
                (Some(due), _) => self.judge(job, handed, due),
                (None, Some(column)) => {
                    let detail = format!("this version cannot read {column}");
                    self.spawn(job, |this| async move {
                        this.undertaker.bury(job, Reason { word: "unreadable", detail }).await;
                    });
                }
                (None, None) => self.spawn(job, |this| async move { this.undertaker.unknown(job).await }),
            }
        }
        self.move_to_bulk(to_bulk);
    }

    /// The tenants that flood the main lane.
    fn flooding(&self, jobs: &[(Job, Handed)], due: &HashMap<DeliveryId, Due>) -> HashSet<TenantId> {
        let mut tenants = HashMap::new();
        let in_main = jobs.iter().filter(|(_, handed)| handed.lane == Which::Main);
        for due in in_main.filter_map(|(job, _)| due.get(&job.delivery)) {
            *tenants.entry(due.destination.tenant).or_insert(0) += 1;
        }
        self.flood.count(&tenants, Instant::now()).into_iter().collect()
    }

    /// Retries come back over the main lane, also those of jobs that came over the bulk lane.
    fn move_to_bulk(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let (names, in_flight, metrics) = (self.names.clone(), Arc::clone(&self.in_flight), self.metrics.clone());
        self.tasks.spawn(async move {
            let count = jobs.len();
            let moved = jobs.into_iter().map(|job| {
                let there = Outgoing { queue: names.bulk(), ..names.job(job) };
                (job, Some(Left::Message(there.carrying(in_flight.times(job)))))
            });
            if in_flight.finish(moved.collect::<Vec<_>>()).await.is_some() {
                metrics.moved_to_bulk(count);
            }
        });
    }

    /// Whose jobs were found in the slow lane may have more there.
    async fn stamp(&self, jobs: &[(Job, Handed)], due: &HashMap<DeliveryId, Due>) -> Option<()> {
        let of_slow = |(job, handed): &(Job, Handed)| match handed.lane {
            Which::Slow => Some(due.get(&job.delivery)?.destination.webhook),
            Which::Main | Which::Bulk => None,
        };
        let webhooks: Vec<_> = jobs.iter().filter_map(of_slow).collect();
        persist("stamping webhooks", &self.abandon, || self.stamps.set(&self.ledger, &webhooks)).await
    }

    /// The jobs that messages hold; what holds none is moved aside.
    fn open(&self, lane: Which, batch: Vec<Received>) -> VecDeque<(Job, Part, Handed)> {
        let mut opened = VecDeque::with_capacity(batch.len());
        for Received { body, acker, handed_out: times, .. } in batch {
            match Job::parse(&body) {
                Ok(jobs) if jobs.len() > 1 && suspects::are_to_part(times) => {
                    let alone =
                        |job| Outgoing { queue: lane.queue(&self.names), ..self.names.job(job) }.carrying(times);
                    self.replace(acker, jobs.into_iter().map(alone).collect());
                }
                Ok(jobs) => {
                    let handed = Handed { lane, redelivered: Redelivered::from(times > 0), times };
                    let parts = Part::of(acker, jobs.len());
                    opened.extend(jobs.into_iter().zip(parts).map(|(job, part)| (job, part, handed)));
                }
                Err(error) => {
                    tracing::error!(%error, "a message that is no job is moved to the dead ones");
                    self.metrics.skipped(error.reason());
                    let reason = Reason { word: error.reason(), detail: error.to_string() };
                    self.replace(acker, vec![reason.message(body, &self.names)]);
                }
            }
        }
        opened
    }

    /// Publishes others in place of a message, unless it comes again. In a task of its own, as their queue may refuse.
    fn replace(&self, acker: Acker, others: Vec<Outgoing>) {
        let (finisher, part) = (self.in_flight.finisher().clone(), Part::of(acker, others.len()));
        let left = part.into_iter().zip(others.into_iter().map(|other| Some(Left::Message(other))));
        let left: Vec<_> = left.collect();
        self.tasks.spawn(async move { finisher.done(left).await });
    }

    fn judge(self: &Arc<Self>, job: Job, handed: Handed, due: &Due) {
        match due.progress.judge(job, handed.redelivered, OffsetDateTime::now_utc(), &self.schedule) {
            Verdict::Stale => self.skip(job, "stale"),
            Verdict::Attempt => {
                let due = due.clone();
                self.spawn(job, |this| async move { this.attempt(job, handed, due).await });
            }
            Verdict::Early(at) => {
                self.metrics.skipped("early");
                self.spawn(job, move |this| async move { this.park(job, at).await });
            }
            Verdict::FollowUp(at) => {
                self.metrics.skipped("follow_up");
                self.spawn(job, move |this| async move { this.follow_up(job, at).await });
            }
        }
    }

    /// Looks a job up and judges it once more.
    pub(crate) fn again(self: &Arc<Self>, job: Job, handed: Handed) {
        self.spawn(job, |this| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move { this.look_up(vec![(job, handed)]).await })
        });
    }

    pub(crate) fn skip(self: &Arc<Self>, job: Job, reason: &'static str) {
        self.metrics.skipped(reason);
        self.spawn(job, |this| async move { this.pass(job, None).await });
    }

    /// Does a job's work in a task of its own. A panic there is that job's affair: the others go on. (One in what all
    /// jobs share ends the process.)
    fn spawn<F>(self: &Arc<Self>, job: Job, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // An attempt's state is several KiB: in a box, it is not moved again and again on its way into the task.
        let (work, this) = (Box::pin(work(Arc::clone(self))), Arc::clone(self));
        self.tasks.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!(delivery = %job.delivery, attempt = job.attempt, "a job's task panicked");
                let detail = "its task panicked: the dispatcher's log says where".to_owned();
                this.undertaker.bury(job, Reason { word: "panicked", detail }).await;
            }
        });
    }

    /// Brings a job to its end that was not attempted; a twin that came meanwhile is judged by what the ledger says now.
    pub(crate) fn pass(
        self: &Arc<Self>,
        job: Job,
        left: Option<Left>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Some(handed) = self.in_flight.pass(job, left).await {
                self.look_up(vec![(job, handed)]).await;
            }
        })
    }
}

/// Whether a job is a retry that takes the bulk lane. Where first attempts go, ingest has decided.
fn of_flood(job: Job, handed: Handed, flooding: &HashSet<TenantId>, due: &Due) -> bool {
    handed.lane == Which::Main && job.attempt > 1 && flooding.contains(&due.destination.tenant)
}
