//! Moves jobs that were refused admission to the end of the slow lane's queue, many at a time.

use std::{sync::Arc, time::Duration};

use broker::{Names, Outgoing};
use domain::{Job, WebhookId};
use ledger::Ledger;
use service_kit::connections::persist;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    alarm::Alarm,
    in_flight::InFlight,
    lane::{LaneKind, Refusal},
    metrics::Metrics,
    shared_ack::FollowUp,
    stamps::Stamps,
};

/// A job that was refused admission.
pub(crate) struct Move {
    pub(crate) job: Job,
    pub(crate) webhook: WebhookId,
    pub(crate) from: LaneKind,
    /// What it did not get in time.
    pub(crate) refusal: Refusal,
}

/// How many jobs are moved at once. Each is a message. So few fit into one window of the publisher, and other tenants'
/// messages get in between.
const MOST: usize = 16;
/// How long the next batch waits for this one, at most.
const PATIENCE: Duration = Duration::from_millis(500);

/// Moves a batch with one write to the ledger, one to the broker and one acknowledgement. Such jobs come in hundreds,
/// and others would have to wait for each write.
pub(crate) struct Mover {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Metrics,
    pub(crate) abandon: CancellationToken,
    /// Cancelled when this panics.
    pub(crate) broken: CancellationToken,
}

impl Mover {
    /// Moves jobs until all senders are gone. Returns when all are moved, or this was abandoned.
    pub(crate) async fn run(self, mut moves: mpsc::Receiver<Move>) {
        let _alarm = Alarm(self.broken.clone());
        let moving = TaskTracker::new();
        let mut batch = Vec::new();
        while moves.recv_many(&mut batch, MOST).await > 0 {
            let Some(publish) = self.make_way(std::mem::take(&mut batch)).await else { break };
            let alarm = Alarm(self.broken.clone());
            let published = moving.spawn(async move {
                let _alarm = alarm;
                publish.await;
            });
            // A queue that refuses does not hold up the next batch.
            let _ = timeout(PATIENCE, published).await;
        }
        moving.close();
        moving.wait().await;
    }

    /// Tells the ledger. Returns the rest: publish, acknowledge. One message replaces a job's message and all its
    /// duplicates.
    async fn make_way(&self, batch: Vec<Move>) -> Option<impl Future<Output = ()> + use<>> {
        let webhooks: Vec<_> = batch.iter().map(|one| one.webhook).collect();
        let stamp = || self.stamps.set(&self.ledger, &webhooks);
        persist("stamping webhooks", &self.abandon, stamp).await?;
        let (names, in_flight, metrics) = (self.names.clone(), Arc::clone(&self.in_flight), self.metrics.clone());
        Some(async move {
            let moved = batch.iter().map(|Move { job, .. }| {
                let there = Outgoing { queue: names.slow(), ..names.job(*job) };
                (*job, Some(FollowUp::Message(there.carrying(in_flight.delivery_count(*job)))))
            });
            if in_flight.finish(moved.collect::<Vec<_>>()).await.is_some() {
                for Move { from, refusal, .. } in batch {
                    metrics.made_way(from, refusal);
                }
            }
        })
    }
}
