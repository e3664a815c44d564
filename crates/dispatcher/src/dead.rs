//! Parks messages for an operator, with the reason: dead letters.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use broker::{Names, Outgoing};
use domain::{DeliveryId, Job};
use ledger::Ledger;
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::{in_flight::InFlight, metrics::Metrics, shared_ack::FollowUp};

/// Why a message is parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// A word from a closed set.
    pub(crate) word: &'static str,
    /// Details for the operator.
    pub(crate) detail: String,
}

impl Reason {
    /// The dead letter for the queue of dead jobs.
    pub(crate) fn message(&self, body: Vec<u8>, names: &Names) -> Outgoing {
        let headers = BTreeMap::from([
            ("x-dead-reason".to_owned(), self.word.to_owned()),
            ("x-dead-detail".to_owned(), self.detail.clone()),
        ]);
        Outgoing { queue: names.dead(), body, headers, expires_in: None }
    }
}

/// Parks jobs.
#[derive(Clone)]
pub(crate) struct Undertaker {
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) metrics: Metrics,
    /// How long the ledger keeps a delivery.
    pub(crate) keep: Duration,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Undertaker {
    /// Parks a job. Tells the ledger first, so that lost-job detection does not take the job for lost.
    pub(crate) async fn bury(&self, job: Job, reason: Reason) {
        tracing::error!(delivery = %job.delivery, attempt = job.attempt, reason = reason.word, detail = reason.detail, "a job is moved to the dead ones");
        self.metrics.skipped(reason.word);
        let park = || self.ledger.job_park(job.delivery, reason.word);
        if persist("noting a dead job", &self.abandon, park).await.is_none() {
            return;
        }
        let dead = reason.message(job.to_bytes(), &self.names);
        self.in_flight.finish([(job, Some(FollowUp::Message(dead)))]).await;
    }

    /// Ends a job whose delivery the ledger does not have. If retention may have deleted the delivery after its end,
    /// the job is a late duplicate and is let go. Otherwise the ledger lost the delivery, as in a failover to a
    /// database that never got it. The job may be all that is left of it, so it is parked.
    pub(crate) async fn unknown(&self, job: Job) {
        if is_past(job.delivery, OffsetDateTime::now_utc(), self.keep) {
            self.metrics.skipped("expired");
            self.in_flight.finish([(job, None)]).await;
            return;
        }
        let detail = "the ledger has no such delivery: it may have lost it, as in a failover".to_owned();
        self.bury(job, Reason { word: "unknown_delivery", detail }).await;
    }
}

/// Whether a delivery is so old that retention may have deleted it.
fn is_past(delivery: DeliveryId, now: OffsetDateTime, keep: Duration) -> bool {
    let before = (now - keep).unix_timestamp_nanos() / 1_000_000;
    i128::from(delivery.unix_millis()) < before
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn retention_takes_what_fired_before_it() {
        let (now, keep) = (datetime!(2026-03-31 12:00 UTC), Duration::from_secs(30 * 24 * 60 * 60));
        let of = |at: OffsetDateTime| {
            let millis = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap();
            DeliveryId::from(DeliveryId::bound_at_millis(millis))
        };
        assert!(is_past(of(datetime!(2026-03-01 11:59:59.999 UTC)), now, keep));
        assert!(!is_past(of(datetime!(2026-03-01 12:00 UTC)), now, keep));
        assert!(!is_past(of(now), now, keep));
        assert!(is_past(DeliveryId::from(uuid::Uuid::nil()), now, keep));
        assert!(!is_past(DeliveryId::from(uuid::Uuid::max()), now, keep));
    }
}
