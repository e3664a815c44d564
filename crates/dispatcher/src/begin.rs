//! From the judgement to the attempt: a slot, a body, a try.

use std::sync::Arc;

use bytes::Bytes;
use domain::Job;
use ledger::{Due, Standing, StoredBody};
use service_kit::connections::persist;

use crate::{
    in_flight::Handed,
    intake::Intake,
    lane::{Admission, Over},
    suspects::Turn,
};

impl Intake {
    /// Attempts a job, unless its webhook takes no deliveries, or it has to make way for others.
    pub(crate) async fn attempt(self: &Arc<Self>, job: Job, handed: Handed, mut due: Due) {
        let webhook = due.destination.webhook;
        match due.destination.standing {
            Standing::Active => {}
            Standing::Paused => return self.hold(job, webhook).await,
            Standing::Deleted => return self.cancel(job).await,
        }
        let (turn, admission) = match self.admit(handed, &due).await {
            Ok(admitted) => admitted,
            Err(over) => return self.make_way(job, handed.lane, webhook, over).await,
        };
        if let Some(turn) = turn
            && self.begin_suspect(job, handed, turn).await.is_none()
        {
            return;
        }
        let Some(body) = self.body(job, &mut due).await else { return };
        let made = self.sender.attempt(job, due, body).await;
        drop(admission);
        match made {
            // The recorder outlives every attempt, unless it was abandoned: then nothing is acknowledged.
            Ok(made) => drop(self.made.send(made).await),
            Err((due, error)) => self.wait_for_keys(job, &due, &error).await,
        }
    }

    /// What a job needs before it may begin, within one patience.
    async fn admit(&self, handed: Handed, due: &Due) -> Result<(Option<Turn>, Admission), Over> {
        let lane = self.lanes.of(handed.lane);
        let end = lane.patience();
        let turn = self.turns.wait_for(handed, end).await?;
        let long_body = match due.body {
            StoredBody::Here(_) => None,
            StoredBody::Long(bytes) => Some(bytes),
        };
        let admission = lane.admit(due.destination.webhook, due.destination.tenant, long_body, end).await?;
        Ok((turn, admission))
    }

    async fn body(self: &Arc<Self>, job: Job, due: &mut Due) -> Option<Bytes> {
        if let StoredBody::Here(body) = &mut due.body {
            return Some(std::mem::take(body));
        }
        let load = || self.ledger.body_load(job.delivery);
        let body = persist("reading a body", &self.abandon, load).await?;
        if body.is_none() {
            self.skip(job, "unknown");
        }
        body
    }
}
