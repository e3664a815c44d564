//! Jobs that are not attempted for now: held while their webhook is paused, cancelled, or delayed on a retry queue.

use std::{sync::Arc, time::Duration};

use domain::{Job, WebhookId};
use ledger::{Due, UnsealError};
use service_kit::connections::persist;
use time::OffsetDateTime;

use crate::{intake::Intake, shared_ack::FollowUp};

/// How long a job is delayed if its webhook's secret does not open. An operator has to configure the key.
const UNTIL_KEYS_ARE_THERE: Duration = Duration::from_secs(60);

impl Intake {
    /// Holds the job until its webhook is active again. If it is active already, publishes the job again, due at once.
    pub(crate) async fn hold(self: &Arc<Self>, job: Job, webhook: WebhookId) {
        let hold = || self.ledger.job_hold(webhook, job.delivery);
        match persist("holding a job", &self.abandon, hold).await {
            Some(true) => {
                self.metrics.skipped("held");
                self.pass(job, None).await;
            }
            Some(false) => self.come_again(job, OffsetDateTime::now_utc()).await,
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

    /// Delays the job. Tells the ledger first, so that lost-job detection does not take the job for lost.
    pub(crate) async fn wait_for_keys(self: &Arc<Self>, job: Job, due: &Due, error: &UnsealError) {
        let webhook = due.destination.webhook;
        tracing::error!(%webhook, %error, "secrets.keys (WEBHOOKS__SECRETS__KEYS): a signing secret does not open");
        self.metrics.skipped("sealed");
        let until = OffsetDateTime::now_utc() + UNTIL_KEYS_ARE_THERE;
        let postpone = || self.ledger.delivery_postpone(job.delivery, due.progress.attempts, until);
        if persist("postponing a delivery", &self.abandon, postpone).await.is_some() {
            self.come_again(job, until).await;
        }
    }

    /// Publishes a job once more, due at a time.
    pub(crate) async fn come_again(self: &Arc<Self>, job: Job, due: OffsetDateTime) {
        let delivery_count = self.in_flight.delivery_count(job);
        self.pass(job, Some(FollowUp::Republish(job, due, delivery_count))).await;
    }

    /// Publishes the job of the next attempt, due at a time.
    pub(crate) async fn follow_up(&self, job: Job, due: OffsetDateTime) {
        self.in_flight.finish([(job, Some(FollowUp::Retry(job.next(), due)))]).await;
    }
}
