//! Moves jobs that were refused admission to the end of the slow lane's queue, many at a time.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    end::{End, Move},
    settle::Settler,
    shared::Shared,
    stamps::Stamps,
};

/// How many jobs are moved at once. Each is a message. So few fit into one window of the publisher, and other tenants'
/// messages get in between.
const MOST: usize = 16;
/// How long the next batch waits for this one, at most.
const PATIENCE: Duration = Duration::from_millis(500);

/// Moves a batch with one write to the ledger, one to the broker and one acknowledgement. Such jobs come in hundreds,
/// and others would have to wait for each write.
pub(crate) struct Mover {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) settler: Arc<Settler>,
}

impl Mover {
    /// Moves jobs until all senders are gone. Returns when all are moved, or this was abandoned. Stamps their webhooks
    /// before they are in the slow lane.
    pub(crate) async fn run(self, mut moves: mpsc::Receiver<Move>) {
        let _alarm = self.shared.alarm();
        let moving = TaskTracker::new();
        let mut batch = Vec::new();
        while moves.recv_many(&mut batch, MOST).await > 0 {
            let webhooks: Vec<_> = batch.iter().map(|moved| moved.webhook).collect();
            if self.stamps.set(&webhooks).await.is_err() {
                break;
            }
            let (moved, settler, shared) =
                (std::mem::take(&mut batch), Arc::clone(&self.settler), Arc::clone(&self.shared));
            let published = moving.spawn(async move {
                let _alarm = shared.alarm();
                let ends: Vec<_> = moved.iter().map(|one| (one.job, End::ToSlowLane(*one))).collect();
                if settler.end_all(ends).await.is_some() {
                    for Move { from, refusal, .. } in moved {
                        shared.metrics.moved(from, refusal);
                    }
                }
            });
            // A queue that refuses does not hold up the next batch.
            let _ = timeout(PATIENCE, published).await;
        }
        moving.close();
        moving.wait().await;
    }
}
