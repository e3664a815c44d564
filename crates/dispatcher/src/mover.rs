//! Jobs that did not get what they need make way for others: to the end of the slow lane's queue, many at a time.

use std::sync::Arc;

use broker::{Names, Outgoing};
use domain::{Job, WebhookId};
use ledger::Ledger;
use service_kit::connections::persist;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    alarm::Alarm,
    in_flight::InFlight,
    lane::{Over, Which},
    metrics::Metrics,
    parts::Left,
    stamps::Stamps,
};

/// A job that makes way.
pub(crate) struct Move {
    pub(crate) job: Job,
    pub(crate) webhook: WebhookId,
    pub(crate) from: Which,
    /// What it waited for in vain.
    pub(crate) over: Over,
}

/// How many are moved at once: as few as leave room for other tenants' messages between, and, where each is a message of its
/// own, no more than one window of the publisher's, as all of them are published again when one confirm does not come.
const MOST: usize = 16;

/// One write to the ledger, one to the broker and one acknowledgement for all that have come in: they come in hundreds, and
/// others would have to wait for each write.
pub(crate) struct Mover {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Metrics,
    pub(crate) abandon: CancellationToken,
    /// Cancelled when this panicked.
    pub(crate) broken: CancellationToken,
}

impl Mover {
    /// Moves jobs until no more can come.
    pub(crate) async fn run(self, mut moves: mpsc::Receiver<Move>) {
        let _alarm = Alarm(self.broken.clone());
        let mut batch = Vec::new();
        while moves.recv_many(&mut batch, MOST).await > 0 {
            self.make_way(&batch).await;
            batch.clear();
        }
    }

    /// The message that is there stands for all its twins.
    async fn make_way(&self, batch: &[Move]) {
        let webhooks: Vec<_> = batch.iter().map(|one| one.webhook).collect();
        let stamp = || self.stamps.set(&self.ledger, &webhooks);
        if persist("stamping webhooks", &self.abandon, stamp).await.is_none() {
            return;
        }
        let moved = batch.iter().map(|Move { job, .. }| {
            let there = Outgoing { queue: self.names.slow(), ..self.names.job(*job) };
            (*job, Some(Left::Message(there.carrying(self.in_flight.times(*job)))))
        });
        if self.in_flight.finish(moved).await.is_some() {
            for Move { from, over, .. } in batch {
                self.metrics.made_way(*from, *over);
            }
        }
    }
}
