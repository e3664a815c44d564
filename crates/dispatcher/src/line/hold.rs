//! Holds jobs in the ledger, many with one statement: of paused webhooks, and what found no free attempt.

use std::{sync::Arc, time::Duration};

use ledger::JobToHold;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    lane::{LaneKind, refusal::Hold},
    line::{
        in_flight::UnderWay,
        outcome::{DeadReason, End},
        settle::Settler,
    },
};

/// The maximum of jobs that one statement holds.
const MAX_BATCH_JOBS: usize = 128;
/// The pause after a statement: each costs a disk write, for which others wait, and nobody waits for a job to be held.
const BATCH_PAUSE: Duration = Duration::from_millis(100);

/// A job to be held.
pub(crate) struct Holding {
    pub(crate) job: UnderWay,
    pub(crate) hold: Hold,
    /// Gets the job back if it is to be judged again: its webhook was deleted, or is active again, or its messages so far are
    /// held and another one has come meanwhile.
    pub(crate) judge_again: oneshot::Sender<UnderWay>,
}

impl Holding {
    fn held(&self) -> JobToHold {
        let Self { job, hold, .. } = self;
        JobToHold {
            webhook: hold.webhook,
            delivery: job.job().delivery,
            delivery_count: job.delivery_count(),
            is_again: job.receipt().lane == LaneKind::Slow,
            release: hold.release,
        }
    }
}

/// Holds jobs until all senders are gone. Returns when the messages of all are acknowledged, or this was abandoned.
pub(crate) async fn run(settler: Arc<Settler>, mut holds: mpsc::Receiver<Holding>) {
    let settling = TaskTracker::new();
    let mut batch = Vec::new();
    while holds.recv_many(&mut batch, MAX_BATCH_JOBS).await > 0 {
        // What comes later is not held with its job.
        let duplicates: Vec<_> = batch.iter().map(|Holding { job, .. }| job.duplicates()).collect();
        let jobs: Vec<JobToHold> = batch.iter().map(Holding::held).collect();
        let ledger = &settler.context.ledger;
        let holding = settler.context.in_halves("holding jobs", &jobs, |part| ledger.jobs_hold(part));
        let Ok(held) = holding.await else { break };
        let mut parts = Vec::with_capacity(batch.len());
        for (((holding, to_hold), duplicates), is_held) in batch.drain(..).zip(jobs).zip(duplicates).zip(held) {
            let Holding { job, hold, judge_again } = holding;
            let again = match is_held {
                Some(true) => {
                    settler.context.metrics.count_held(hold.refusal);
                    let (acks, next) = job.end(duplicates);
                    parts.extend(acks.into_iter().map(|ack| (ack, None)));
                    next
                }
                Some(false) => Some(job),
                None => {
                    let holding = Holding { job, hold, judge_again };
                    settling.spawn(hold_alone(Arc::clone(&settler), to_hold, holding));
                    continue;
                }
            };
            if let Some(job) = again {
                let _ = judge_again.send(job);
            }
        }
        let settler = Arc::clone(&settler);
        settling.spawn(async move {
            let _watched = settler.context.essential.watch("holding");
            settler.publish_then_ack(parts, None).await;
        });
        if holds.len() < MAX_BATCH_JOBS {
            sleep(BATCH_PAUSE).await;
        }
    }
    settling.close();
    settling.wait().await;
}

/// Tries once more to hold a job whose row seems to be at fault. It is judged again then, or parked.
async fn hold_alone(settler: Arc<Settler>, held: JobToHold, holding: Holding) {
    let context = &settler.context;
    let _watched = context.essential.watch("holding");
    let Holding { job, judge_again, .. } = holding;
    match context.alone("holding a job", || context.ledger.jobs_hold(std::slice::from_ref(&held))).await {
        Ok(Ok(_)) => drop(judge_again.send(job)),
        Ok(Err(fault)) => drop(settler.end_all(vec![(job, End::Dead(DeadReason::Unheld(fault)))]).await),
        Err(_) => {}
    }
}
