//! Takes a job from its judgement to its attempt: gets admission and the body.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{Job, Verdict};
use ledger::{Due, StoredBody, WebhookState};
use service_kit::connections::persist;
use time::OffsetDateTime;

use crate::{
    in_flight::Receipt,
    intake::Intake,
    lane::{Admission, LaneKind, Refusal},
    mover::Move,
    suspects::{Suspicion, Turn},
};

/// After this wait, a delivery is read again: its webhook may be paused or get another URL at any time.
const REREAD_AFTER: Duration = Duration::from_millis(400);

/// What a job holds once it may begin.
struct Admitted {
    turn: Option<Turn>,
    admission: Admission,
    must_reread: bool,
}

impl Intake {
    /// Attempts a job, unless its webhook takes no deliveries or its lane refuses admission.
    pub(crate) async fn attempt(self: &Arc<Self>, job: Job, receipt: Receipt, mut due: Due) {
        let webhook = due.destination.webhook;
        match due.destination.state {
            WebhookState::Active => {}
            WebhookState::Paused => return self.hold(job, webhook).await,
            WebhookState::Deleted => return self.cancel(job).await,
        }
        let Some(suspicion) = self.suspicion(job, receipt).await else { return };
        let Admitted { turn, admission, must_reread } = match self.admit(receipt.lane, suspicion, &due).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                // If the mover was abandoned at the shutdown, the message stays unacknowledged and is redelivered.
                return drop(self.moves.send(Move { job, webhook, from: receipt.lane, refusal }).await);
            }
        };
        if must_reread {
            let Some(reread) = self.still_due(job, receipt).await else { return };
            due = reread;
        }
        if self.note(job, receipt, turn).await.is_none() {
            return;
        }
        let Some(body) = self.body(job, &mut due).await else { return };
        match admission.spend(self.sender.attempt(job, due, body)).await {
            // The same holds for the recorder.
            Ok(result) => drop(self.results.send(result).await),
            Err((due, error)) => self.wait_for_keys(job, &due, &error).await,
        }
    }

    /// Waits for a suspect's turn, a slot and room for a long body, all within one `Patience`. Tells whether the delivery has to be read again.
    async fn admit(&self, lane: LaneKind, suspicion: Suspicion, due: &Due) -> Result<Admitted, Refusal> {
        let mut patience = self.lanes.of(lane).patience(due.destination.webhook, due.destination.tenant);
        let turn = self.turns.wait_for(suspicion, patience.end()).await?;
        let long_body = match due.body {
            StoredBody::Here(_) => None,
            StoredBody::Long(bytes) => Some(bytes),
        };
        let admission = patience.admit(long_body).await?;
        Ok(Admitted { turn, admission, must_reread: patience.began().elapsed() >= REREAD_AFTER })
    }

    /// Reads the delivery again. Returns it if this attempt is still due, else has the job judged again.
    async fn still_due(self: &Arc<Self>, job: Job, receipt: Receipt) -> Option<Due> {
        let ids = [job.delivery];
        let loaded = persist("reading a delivery", &self.abandon, || self.ledger.due_load(&ids)).await?;
        let now = OffsetDateTime::now_utc();
        let due = loaded.due.into_iter().next().filter(|due| {
            due.destination.state == WebhookState::Active
                && due.progress.judge(job, receipt.redelivered(), now, &self.schedule) == Verdict::Attempt
        });
        if due.is_none() {
            self.judge_again(job, receipt);
        }
        due
    }

    async fn body(self: &Arc<Self>, job: Job, due: &mut Due) -> Option<Bytes> {
        if let StoredBody::Here(body) = &mut due.body {
            return Some(std::mem::take(body));
        }
        let load = || self.ledger.body_load(job.delivery);
        let body = persist("reading a body", &self.abandon, load).await?;
        if body.is_none() {
            self.undertaker.unknown(job).await;
        }
        body
    }
}
