//! The line: a job's way from its look-up to its attempt. Each step returns what the next one needs, or the job's end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{Job, Verdict};
use futures_util::FutureExt;
use ledger::{Attempted, Due, SecretKeys, StoredBody, UnsealError, WebhookState};
use time::OffsetDateTime;
use tokio::sync::mpsc;

use crate::{
    attempt::Sender,
    end::{Dead, End, Move, Skip},
    in_flight::Receipt,
    lane::{Admission, Lanes},
    look_up::{Found, LookUp},
    settle::Settler,
    shared::{Abandoned, Shared},
    suspects::{Suspects, Turn},
};

/// After this wait, a delivery is read again: its webhook may be paused or get another URL at any time.
const REREAD_AFTER: Duration = Duration::from_millis(400);
/// How long a job is delayed if its webhook's secret does not open. An operator has to configure the key.
const SEALED_DELAY: Duration = Duration::from_secs(60);

pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    pub(crate) look_up: LookUp,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) suspects: Suspects,
    pub(crate) keys: SecretKeys,
    pub(crate) sender: Sender,
    /// To the recorder.
    pub(crate) attempts: mpsc::Sender<Attempted>,
    /// To the mover.
    pub(crate) moves: mpsc::Sender<Move>,
    pub(crate) settler: Arc<Settler>,
}

impl Line {
    /// Takes a job all its way, and duplicates of it that came meanwhile. A panic on the way parks only this job. A panic
    /// while its end is settled ends the process, as one of recorder and mover does.
    pub(crate) async fn run(self: Arc<Self>, job: Job, mut receipt: Receipt, found: Found) {
        let _alarm = self.shared.alarm();
        let mut found = Some(found);
        loop {
            // An attempt's state is several KiB. In a box, it is not copied again and again on its way into the task.
            let way = Box::pin(self.way(job, receipt, found.take()));
            let end = match AssertUnwindSafe(way).catch_unwind().await {
                // If recorder and mover were abandoned, the message stays unacknowledged and is redelivered.
                Ok(Ok(attempted)) => {
                    let _ = self.attempts.send(attempted).await;
                    return;
                }
                Ok(Err(End::OtherLane(moved))) => {
                    let _ = self.moves.send(moved).await;
                    return;
                }
                Ok(Err(End::JudgeAgain)) => continue,
                Ok(Err(end)) => end,
                Err(_) => End::Dead(Dead::Panicked),
            };
            match Box::pin(self.settler.settle(job, end)).await {
                Some(duplicate) => receipt = duplicate,
                None => return,
            }
        }
    }

    async fn way(&self, job: Job, receipt: Receipt, found: Option<Found>) -> Result<Attempted, End> {
        let found = match found {
            Some(found) => found,
            None => self.look_up.one(job, receipt).await?,
        };
        let due = self.judge(job, receipt, found).await?;
        let (admission, turn, due) = self.admit(job, receipt, due).await?;
        self.suspects.note(job, receipt, turn).await?;
        let body = self.body(&due).await?;
        match self.keys.open(due.destination.webhook, &due.destination.secret) {
            Ok(secret) => Ok(admission.spend(self.sender.attempt(job, due, &secret, body)).await),
            Err(error) => {
                drop(admission);
                Err(self.wait_for_keys(&due, &error).await?)
            }
        }
    }

    /// Returns the delivery if the attempt is to be made now.
    async fn judge(&self, job: Job, receipt: Receipt, found: Found) -> Result<Due, End> {
        let due = match found {
            Found::Due(due) => *due,
            Found::Unreadable(column) => return Err(End::Dead(Dead::Unreadable(column))),
            Found::Nothing => return Err(End::Unknown),
        };
        match self.verdict(job, receipt, &due) {
            Verdict::Attempt => {}
            Verdict::Stale => return Err(self.skip(Skip::Stale, End::Skipped)),
            Verdict::Early(at) => return Err(self.skip(Skip::Early, End::Later(at))),
            Verdict::FollowUp(at) => return Err(self.skip(Skip::FollowUp, End::Retry(at))),
        }
        match due.destination.state {
            WebhookState::Active => Ok(due),
            WebhookState::Paused => Err(self.hold(&due).await?),
            WebhookState::Deleted => Err(self.cancel(&due).await?),
        }
    }

    fn verdict(&self, job: Job, receipt: Receipt, due: &Due) -> Verdict {
        due.progress.judge(job, receipt.redelivered(), OffsetDateTime::now_utc(), &self.shared.schedule)
    }

    /// Holds the job until its webhook is active again, unless it is active already.
    async fn hold(&self, due: &Due) -> Result<End, Abandoned> {
        let hold = || self.shared.ledger.job_hold(due.destination.webhook, due.id);
        let is_held = self.shared.persist("holding a job", hold).await?;
        Ok(if is_held { self.skip(Skip::Held, End::Skipped) } else { End::JudgeAgain })
    }

    async fn cancel(&self, due: &Due) -> Result<End, Abandoned> {
        let ids = [due.id];
        self.shared.persist("cancelling a delivery", || self.shared.ledger.deliveries_cancel(&ids)).await?;
        Ok(self.skip(Skip::Cancelled, End::Done))
    }

    /// Waits for a suspect's turn, a slot and room for a long body, all within one `Patience`. Returns the delivery as it
    /// is after a long wait.
    async fn admit(&self, job: Job, receipt: Receipt, due: Due) -> Result<(Admission, Option<Turn>, Due), End> {
        let suspicion = self.suspects.suspicion(job, receipt).await?;
        let (webhook, tenant) = (due.destination.webhook, due.destination.tenant);
        let long_body = match due.body {
            StoredBody::Here(_) => None,
            StoredBody::Long(bytes) => Some(bytes),
        };
        let mut patience = self.lanes.of(receipt.lane).patience(webhook, tenant);
        let refused = |refusal| End::OtherLane(Move { job, webhook, from: receipt.lane, refusal });
        let turn = self.suspects.turn(suspicion, patience.end()).await.map_err(refused)?;
        let admission = patience.admit(long_body).await.map_err(refused)?;
        if patience.began().elapsed() < REREAD_AFTER {
            return Ok((admission, turn, due));
        }
        match self.look_up.reread(job).await? {
            Found::Due(due)
                if due.destination.state == WebhookState::Active
                    && self.verdict(job, receipt, &due) == Verdict::Attempt =>
            {
                Ok((admission, turn, *due))
            }
            // Without the admission: others wait for it.
            _ => Err(End::JudgeAgain),
        }
    }

    async fn body(&self, due: &Due) -> Result<Bytes, End> {
        match &due.body {
            StoredBody::Here(body) => Ok(body.clone()),
            StoredBody::Long(_) => {
                let load = || self.shared.ledger.body_load(due.id);
                self.shared.persist("reading a body", load).await?.ok_or(End::Unknown)
            }
        }
    }

    /// Delays the job of a webhook whose secret does not open. Tells the ledger first, so that lost-job detection does not
    /// take the job for lost.
    async fn wait_for_keys(&self, due: &Due, error: &UnsealError) -> Result<End, Abandoned> {
        let webhook = due.destination.webhook;
        tracing::error!(%webhook, %error, "secrets.keys (WEBHOOKS__SECRETS__KEYS): a signing secret does not open");
        let until = OffsetDateTime::now_utc() + SEALED_DELAY;
        let postpone = || self.shared.ledger.delivery_postpone(due.id, due.progress.attempts, until);
        self.shared.persist("postponing a delivery", postpone).await?;
        Ok(self.skip(Skip::Sealed, End::Later(until)))
    }

    /// Counts why a job is not attempted.
    fn skip(&self, why: Skip, end: End) -> End {
        self.shared.metrics.skipped(why.as_str());
        end
    }
}
