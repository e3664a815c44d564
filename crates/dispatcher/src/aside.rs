//! Jobs that are not attempted now: held, cancelled, or parked until later.

use std::{sync::Arc, time::Duration};

use domain::{Job, WebhookId};
use ledger::{Due, UnsealError};
use service_kit::connections::persist;
use time::OffsetDateTime;

use crate::{intake::Intake, parts::Left};

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

    /// Makes a job come back at `due`.
    pub(crate) async fn park(self: &Arc<Self>, job: Job, due: OffsetDateTime) {
        let times = self.in_flight.times(job);
        self.pass(job, Some(Left::Again(job, due, times))).await;
    }

    /// Makes the attempt after a job's come at `due`.
    pub(crate) async fn follow_up(&self, job: Job, due: OffsetDateTime) {
        self.in_flight.finish([(job, Some(Left::Job(job.next(), due)))]).await;
    }
}
