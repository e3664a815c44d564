//! The line: a job's way from its look-up to its attempt. Each step returns what the next one needs, or the job's end.

use std::{num::NonZeroU32, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use domain::{Traceparent, Verdict, WebhookState, error_chain};
use futures_util::FutureExt;
use governor::DefaultDirectRateLimiter;
use ledger::{Attempted, Destination, LoadedDelivery, SecretKeys, StoredBody, UnsealError};
use time::OffsetDateTime;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

use crate::{
    brake::Brake,
    lane::{
        LaneKind,
        admission::{Admission, Lanes},
        quota::{Owner, Permit},
        refusal::{Hold, Refusal},
        speed::Timed,
    },
    line::{
        attempt::{Secrets, Sender},
        context::LineContext,
        hold::Holding,
        in_flight::UnderWay,
        look_up::Lookup,
        outcome::{Abandoned, DeadReason, End, Stop},
        record::Made,
        settle::Settler,
        suspects::{Suspects, Turn},
    },
    metrics::NotAttempted,
};

/// A delivery that was read longer ago is read again before it is sent: its webhook may be paused or get another URL at
/// any time, and another process may take its job.
const REREAD_AFTER: Duration = Duration::from_millis(400);
/// The time for which a job is delayed if its webhook's secret does not open, or if no descriptor is left for its attempt: an
/// operator has to repair something.
const POSTPONE_DELAY: Duration = Duration::from_secs(60);
/// The time for which a job keeps its place if no descriptor is left for its attempt. Otherwise, this process would take and
/// postpone jobs as fast as it can.
const DESCRIPTOR_PAUSE: Duration = Duration::from_secs(1);
/// The number of times in a minute that the log says that no descriptor is left.
pub(crate) const LACK_LOGS_PER_MINUTE: NonZeroU32 = NonZeroU32::MIN;

pub(crate) struct Line {
    pub(crate) context: Arc<LineContext>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) suspects: Suspects,
    pub(crate) brake: Arc<Brake>,
    pub(crate) keys: SecretKeys,
    pub(crate) sender: Sender,
    pub(crate) to_recorder: mpsc::Sender<Made>,
    pub(crate) to_holder: mpsc::Sender<Holding>,
    pub(crate) settler: Arc<Settler>,
    /// Limits how often the log says that no descriptor is left.
    pub(crate) lacks: DefaultDirectRateLimiter,
}

impl Line {
    /// Takes a job all its way, and duplicates of it that came meanwhile. `found` was read at `read_at`. A panic on the
    /// way parks only this job. A panic while its end is settled ends the process, as one of recorder and holder does.
    pub(crate) async fn run(self: Arc<Self>, mut job: UnderWay, found: Lookup, read_at: Instant) {
        let _watched = self.context.essential.watch("job");
        let mut read = Some((found, read_at));
        loop {
            // An attempt's state is several KiB. In a box, it is not copied again and again on its way into the task.
            let steps = Box::pin(self.steps(&mut job, read.take()));
            let stop = match AssertUnwindSafe(steps).catch_unwind().await {
                // If recorder and holder were abandoned, the message stays unacknowledged and is redelivered.
                Ok(Ok(attempted)) => {
                    let _ = self.to_recorder.send((job, attempted)).await;
                    return;
                }
                Ok(Err(stop)) => stop,
                Err(_) => Stop::End(End::Dead(DeadReason::Panicked)),
            };
            let again = match stop {
                Stop::GiveBack => None,
                Stop::Hold(hold) => self.hold(job, hold).await,
                Stop::End(end) => Box::pin(self.settler.end_all(vec![(job, end)])).await.pop(),
            };
            match again {
                Some(again) => job = again,
                None => return,
            }
        }
    }

    async fn steps(&self, job: &mut UnderWay, read: Option<(Lookup, Instant)>) -> Result<Attempted, Stop> {
        let (found, read_at) = match read {
            Some(read) => read,
            None => self.context.look_up_one(job.job()).await?,
        };
        let delivery = self.judge(job, found).await?;
        let tries = self.suspects.tries(job).await?;
        let (mut admission, turn) = self.admit(job, tries, &delivery).await?;
        // Its slot bounds it.
        if admission.is_slow() || job.receipt().lane == LaneKind::Slow {
            job.leave_place();
        }
        self.suspects.note(job, tries, turn).await?;
        let body = self.body(job, &delivery).await?;
        let delivery = match read_at.elapsed() < REREAD_AFTER {
            true => delivery,
            false => self.judge(job, self.context.look_up_one(job.job()).await?.0).await?,
        };
        if !job.is_usable() {
            return Err(self.count(NotAttempted::MessageLost, End::NotNeeded));
        }
        match self.open(&delivery.destination) {
            Ok(secrets) => {
                admission.begin().await;
                if self.brake.is_on() {
                    return Err(self.count(NotAttempted::Braked, Stop::GiveBack));
                }
                let lane = if admission.is_slow() { LaneKind::Slow } else { job.receipt().lane };
                // A postponed attempt was counted when it was postponed. A resend is no acceptance.
                let is_counted = delivery.progress.attempts == 0 && (lane != LaneKind::Main || delivery.is_new());
                let delay = is_counted.then(|| self.context.database.now() - delivery.due());
                let accepted_at = delivery.is_new().then_some(delivery.created_at);
                let timed = admission.timed();
                let body = with_permit(body, admission.body.take(), &timed);
                let (tenant, attempts) = (delivery.destination.tenant, delivery.progress.attempts);
                let attempt = pin!(self.sender.attempt(job.job(), delivery, secrets, body));
                let Ok(made) = admission.spend(&timed, attempt, || job.leave_place()).await else {
                    timed.mark_not_made();
                    drop(timed);
                    return Err(self.wait_for_descriptors(job, attempts, accepted_at).await?);
                };
                if let Some(delay) = delay {
                    self.context.metrics.observe_delay(lane, delay);
                }
                if made.answer.status.is_some() {
                    timed.mark_answered();
                }
                self.brake.note_attempt(&made, tenant);
                self.context.metrics.count_attempt(&made.answer);
                Ok(made)
            }
            Err(error) => {
                drop(admission);
                Err(self.wait_for_keys(job, &delivery, &error).await?)
            }
        }
    }

    /// Returns the delivery if the attempt is to be made now.
    async fn judge(&self, job: &UnderWay, found: Lookup) -> Result<LoadedDelivery, Stop> {
        let found = match found {
            Lookup::Unreadable => self.context.look_up_alone(job.job()).await?,
            found => found,
        };
        let Lookup::Delivery(delivery) = found else {
            return Err(self.settler.end_of_unknown(job.job()).await?.into());
        };
        let delivery = *delivery;
        let (redelivered, now) = (job.receipt().redelivered(), self.context.database.now());
        match delivery.progress.judge(job.job(), redelivered, now, &self.context.schedule) {
            Verdict::Attempt => {}
            Verdict::Stale => return Err(self.count(NotAttempted::Stale, End::NotNeeded)),
            Verdict::Early(at) => {
                return Err(self.count(NotAttempted::Early, End::Again(at, job.delivery_count())));
            }
            Verdict::PublishRetry(due) => {
                return Err(self.count(NotAttempted::PublishRetry, End::Retry(due)));
            }
        }
        match delivery.destination.state {
            WebhookState::Active => Ok(delivery),
            WebhookState::Paused => {
                let webhook = delivery.destination.webhook;
                Err(Stop::Hold(Hold { webhook, refusal: Refusal::Paused, release: None }))
            }
            WebhookState::Deleted => Err(self.cancel(&delivery).await?),
        }
    }

    /// Has the ledger hold a job. Returns when that is done, with the job if it is to be judged again.
    async fn hold(&self, job: UnderWay, hold: Hold) -> Option<UnderWay> {
        let (judge_again, again) = oneshot::channel();
        self.to_holder.send(Holding { job, hold, judge_again }).await.ok()?;
        again.await.ok()
    }

    async fn cancel(&self, delivery: &LoadedDelivery) -> Result<Stop, Abandoned> {
        let ids = [delivery.id];
        self.context.until_done("cancelling a delivery", || self.context.ledger.deliveries_cancel(&ids)).await?;
        Ok(self.count(NotAttempted::Cancelled, End::Done))
    }

    /// Waits for a suspect's turn, and for admission.
    async fn admit(
        &self,
        job: &UnderWay,
        tries: u16,
        delivery: &LoadedDelivery,
    ) -> Result<(Admission, Option<Turn>), Stop> {
        let owner = Owner { webhook: delivery.destination.webhook, tenant: delivery.destination.tenant };
        let long_body = match delivery.body {
            StoredBody::Here(_) => None,
            StoredBody::Long(bytes) => Some(bytes),
        };
        let turn = self.suspects.turn(tries, owner.webhook).await.map_err(Stop::Hold)?;
        let admission = self.lanes.admit(owner, job.receipt().lane, long_body).await;
        if admission.as_ref().is_err_and(Hold::is_of_silent_webhook) {
            self.brake.note_failure(owner, &delivery.destination.url);
        }
        Ok((admission.map_err(Stop::Hold)?, turn))
    }

    /// Opens the secrets of a webhook.
    fn open(&self, of: &Destination) -> Result<Secrets, UnsealError> {
        let signing = self.keys.open(of.webhook, &of.secret)?;
        Ok(Secrets { signing, headers: self.keys.open_headers(of.webhook, &of.headers)? })
    }

    async fn body(&self, job: &UnderWay, delivery: &LoadedDelivery) -> Result<Bytes, Stop> {
        match &delivery.body {
            StoredBody::Here(body) => Ok(body.clone()),
            StoredBody::Long(_) => {
                let (what, load) = ("reading a body", || self.context.ledger.body_load(delivery.id));
                let mut read = self.context.until_judged(what, load).await?;
                if read.is_err() {
                    read = self.context.alone(what, load).await?;
                }
                match read {
                    Ok(Some(body)) => Ok(body),
                    Ok(None) => Err(self.settler.end_of_unknown(job.job()).await?.into()),
                    Err(fault) => Err(End::Dead(DeadReason::Unreadable(fault)).into()),
                }
            }
        }
    }

    /// Delays the job of a webhook with a secret that does not open.
    async fn wait_for_keys(
        &self,
        job: &UnderWay,
        delivery: &LoadedDelivery,
        error: &UnsealError,
    ) -> Result<Stop, Abandoned> {
        let webhook = delivery.destination.webhook;
        let traceparent = delivery.traceparent.as_ref().map(Traceparent::as_str);
        tracing::error!(
            %webhook, error = error_chain(error), traceparent,
            "secrets.keys (WEBHOOKS__SECRETS__KEYS): a signing secret or a webhook's headers do not open"
        );
        let accepted_at = delivery.is_new().then_some(delivery.created_at);
        self.postpone(job, NotAttempted::Sealed, delivery.progress.attempts, accepted_at).await
    }

    /// Delays the job for whose attempt no descriptor was left.
    async fn wait_for_descriptors(
        &self,
        job: &UnderWay,
        attempts: u16,
        accepted_at: Option<OffsetDateTime>,
    ) -> Result<Stop, Abandoned> {
        if self.lacks.check().is_ok() {
            tracing::error!(
                "no descriptor is left for attempts, and each is made a minute later: raise the limit of open files \
                 (LimitNOFILE, ulimit -Hn), or look for what holds them (process_open_fds)"
            );
        }
        sleep(DESCRIPTOR_PAUSE).await;
        self.postpone(job, NotAttempted::NoDescriptor, attempts, accepted_at).await
    }

    /// Delays a job after this number of attempts. Notes the time in the ledger first, so that lost-job detection does not
    /// take the job for lost. `accepted_at` is that of a new delivery.
    async fn postpone(
        &self,
        job: &UnderWay,
        why: NotAttempted,
        attempts: u16,
        accepted_at: Option<OffsetDateTime>,
    ) -> Result<Stop, Abandoned> {
        let (delivery, until) = (job.job().delivery, self.context.database.now() + POSTPONE_DELAY);
        let postpone = || self.context.ledger.delivery_postpone(delivery, attempts, until);
        self.context.until_done("postponing a delivery", postpone).await?;
        if let Some(accepted_at) = accepted_at {
            self.context.metrics.observe_delay(job.receipt().lane, until - accepted_at);
        }
        Ok(self.count(why, End::Again(until, job.delivery_count())))
    }

    /// Counts why a job is not attempted.
    fn count(&self, why: NotAttempted, stop: impl Into<Stop>) -> Stop {
        self.context.metrics.count_not_attempted(why);
        stop.into()
    }
}

/// A long body with its permit, and with the timing of its attempt. A receiver may answer immediately, and read the body late
/// or never: hyper holds the body until then.
struct PermittedBody {
    body: Bytes,
    _permit: Permit,
    _timed: Arc<Timed>,
}

impl AsRef<[u8]> for PermittedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns the body with its permit, which is released when the last copy of the body is dropped.
fn with_permit(body: Bytes, permit: Option<Permit>, timed: &Arc<Timed>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(PermittedBody { body, _permit: permit, _timed: Arc::clone(timed) }),
        None => body,
    }
}
