//! Holds jobs in the ledger, many with one statement: of paused webhooks, and what found no free attempt.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use domain::DeliveryId;
use ledger::Held;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    abandoned::Abandoned,
    end::{DeadReason, End, Hold},
    in_flight::Receipt,
    lane::LaneKind,
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

/// A job to be held, and a channel for the case that it continues.
pub(crate) type Holding = (Hold, oneshot::Sender<Continue>);

/// The job has to be judged again: its webhook was deleted, or is active again. With a receipt: its messages so far are
/// held, and another one has come meanwhile.
pub(crate) struct Continue(pub(crate) Option<Receipt>);

impl Holder {
    /// Holds jobs until all senders are gone. Returns when the messages of all are acknowledged, or this was abandoned.
    pub(crate) async fn run(self, mut holds: mpsc::Receiver<Holding>) {
        let settling = TaskTracker::new();
        let mut batch = Vec::new();
        while holds.recv_many(&mut batch, MOST).await > 0 {
            let in_flight = &self.shared.in_flight;
            let seen: Vec<_> = batch.iter().map(|(hold, _)| in_flight.messages(hold.job)).collect();
            let held_job = |((hold, _), (_, lane)): (&Holding, &(usize, Option<LaneKind>))| {
                hold.held(in_flight.handed_out_before(hold.job), *lane == Some(LaneKind::Slow))
            };
            let jobs: Vec<Held> = batch.iter().zip(&seen).map(held_job).collect();
            let ledger = &self.shared.ledger;
            let holding = self.shared.in_halves("holding jobs", &jobs, |part| ledger.jobs_hold(part));
            let Ok((held, faulty)) = holding.await else { break };
            let held: HashSet<DeliveryId> = held.into_iter().flatten().collect();
            let mut faulty: HashMap<_, _> = faulty.into_iter().map(|held| (held.delivery, *held)).collect();
            let mut parts = Vec::with_capacity(batch.len());
            for ((hold, judge_again), (messages, _)) in batch.drain(..).zip(seen) {
                if let Some(held) = faulty.remove(&hold.job.delivery) {
                    let (shared, settler) = (Arc::clone(&self.shared), Arc::clone(&self.settler));
                    settling.spawn(hold_alone(shared, settler, held, (hold, judge_again)));
                    continue;
                }
                let later = if held.contains(&hold.job.delivery) {
                    self.shared.metrics.held(hold.why);
                    let (acks, later) = in_flight.finish_messages(hold.job, messages);
                    parts.extend(acks.into_iter().map(|ack| (ack, None)));
                    later.map(Some)
                } else {
                    Some(None)
                };
                if let Some(receipt) = later {
                    let _ = judge_again.send(Continue(receipt));
                }
            }
            let (settler, shared) = (Arc::clone(&self.settler), Arc::clone(&self.shared));
            settling.spawn(async move {
                let _watched = shared.essential.watch("holding");
                settler.publish_then_ack(parts).await;
            });
            if holds.len() < MOST {
                sleep(PACE).await;
            }
        }
        settling.close();
        settling.wait().await;
    }
}

/// Tries once more to hold a job whose row seems to be at fault. It is judged again then, or parked.
async fn hold_alone(shared: Arc<Shared>, settler: Arc<Settler>, held: Held, (hold, judge_again): Holding) {
    let _watched = shared.essential.watch("holding");
    let jobs = [held];
    match shared.alone("holding a job", || shared.ledger.jobs_hold(&jobs)).await {
        Ok(Ok(_)) => drop(judge_again.send(Continue(None))),
        Ok(Err(fault)) => {
            settler.end_all(vec![(hold.job, End::Dead(DeadReason::Unheld(fault)))]).await;
        }
        Err(Abandoned) => {}
    }
}
