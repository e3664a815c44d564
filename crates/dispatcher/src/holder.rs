//! Holds jobs in the ledger, many with one statement: of paused webhooks, and what found no free attempt.

use std::{sync::Arc, time::Duration};

use ledger::Held;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    end::{End, Hold},
    settle::Settler,
    shared::Shared,
};

/// The maximum of jobs that one statement holds.
const MOST: usize = 128;
/// The pause after a statement: each costs a disk write, for which others wait, and nobody waits for a job to be held.
const PACE: Duration = Duration::from_millis(100);

pub(crate) struct Holder {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settler: Arc<Settler>,
}

/// A job to be held, and a channel for the answer that it cannot be held: its webhook was deleted, or is active again.
pub(crate) type Holding = (Hold, oneshot::Sender<NotHeld>);

/// The job is to be judged again.
pub(crate) struct NotHeld;

impl Holder {
    /// Holds jobs until all senders are gone. Returns when the messages of all are acknowledged, or this was abandoned.
    pub(crate) async fn run(self, mut holds: mpsc::Receiver<Holding>) {
        let _alarm = self.shared.alarm();
        let settling = TaskTracker::new();
        let mut batch = Vec::new();
        while holds.recv_many(&mut batch, MOST).await > 0 {
            let jobs: Vec<Held> =
                batch.iter().map(|(hold, _)| hold.held(self.shared.in_flight.handed_out_before(hold.job))).collect();
            let hold = || self.shared.ledger.jobs_hold(&jobs);
            let Ok(held) = self.shared.until_done("holding jobs", hold).await else { break };
            let mut ends = Vec::with_capacity(batch.len());
            for (hold, judge_again) in batch.drain(..) {
                if held.contains(&hold.job.delivery) {
                    self.shared.metrics.held(hold.why);
                    ends.push((hold.job, End::Held));
                } else {
                    let _ = judge_again.send(NotHeld);
                }
            }
            let (settler, shared) = (Arc::clone(&self.settler), Arc::clone(&self.shared));
            settling.spawn(async move {
                let _alarm = shared.alarm();
                settler.end_all(ends).await;
            });
            if holds.len() < MOST {
                sleep(PACE).await;
            }
        }
        settling.close();
        settling.wait().await;
    }
}
