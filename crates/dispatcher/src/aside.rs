//! Jobs that are not attempted now: held, cancelled, parked until later, or moved to the dead ones.

use std::{sync::Arc, time::Duration};

use domain::{Job, WebhookId};
use ledger::{Due, UnsealError};
use service_kit::connections::persist;
use time::OffsetDateTime;

use crate::{dead::Reason, intake::Intake, parts::Left};

/// How long a job waits whose webhook's secret does not open: an operator has to configure the key first.
const UNTIL_KEYS_ARE_THERE: Duration = Duration::from_secs(60);

impl Intake {
    /// Leaves the delivery waiting until its webhook is active again; if it is by now, the job comes back at once.
    pub(crate) async fn hold(self: &Arc<Self>, job: Job, webhook: WebhookId) {
        let hold = || self.ledger.job_hold(webhook, job.delivery);
        match persist("holding a job", &self.abandon, hold).await {
            Some(true) => {
                self.metrics.skipped("held");
                self.pass(job, None).await;
            }
            Some(false) => self.park(job, OffsetDateTime::now_utc()).await,
            None => {}
        }
    }

    pub(crate) async fn cancel(&self, job: Job) {
        self.metrics.skipped("cancelled");
        let ids = [job.delivery];
        let cancel = || self.ledger.deliveries_cancel(&ids);
        if persist("cancelling a delivery", &self.abandon, cancel).await.is_some() {
            self.in_flight.finish([(job, None)]).await;
        }
    }

    /// The ledger is told first, so that nobody takes a job for lost that waits here.
    pub(crate) async fn wait_for_keys(self: &Arc<Self>, job: Job, due: &Due, error: &UnsealError) {
        let webhook = due.destination.webhook;
        tracing::error!(%webhook, %error, "secrets.keys (WEBHOOKS__SECRETS__KEYS): a signing secret does not open");
        self.metrics.skipped("sealed");
        let until = OffsetDateTime::now_utc() + UNTIL_KEYS_ARE_THERE;
        let postpone = || self.ledger.delivery_postpone(job.delivery, due.progress.attempts, until);
        if persist("postponing a delivery", &self.abandon, postpone).await.is_some() {
            self.park(job, until).await;
        }
    }

    /// Moves a job to the dead ones, where people find it. The ledger knows, so that nobody takes it for lost.
    pub(crate) async fn bury(&self, job: Job, reason: Reason) {
        tracing::error!(delivery = %job.delivery, attempt = job.attempt, reason = reason.word, detail = reason.detail, "a job is moved to the dead ones");
        self.metrics.skipped(reason.word);
        let park = || self.ledger.job_park(job.delivery, reason.word);
        if persist("noting a dead job", &self.abandon, park).await.is_none() {
            return;
        }
        let dead = reason.message(job.to_bytes(), &self.names);
        self.in_flight.finish([(job, Some(Left::Message(dead)))]).await;
    }

    /// Makes a job come back at `due`.
    pub(crate) async fn park(self: &Arc<Self>, job: Job, due: OffsetDateTime) {
        self.pass(job, Some(Left::Job(job, due))).await;
    }

    /// Makes the attempt after a job's come at `due`.
    pub(crate) async fn follow_up(&self, job: Job, due: OffsetDateTime) {
        self.in_flight.finish([(job, Some(Left::Job(job.next(), due)))]).await;
    }
}
