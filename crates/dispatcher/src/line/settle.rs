//! The end of every job: publishes its follow-up, waits for the confirm, acknowledges its messages.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use broker::{Acker, Outgoing, Publisher};
use domain::{DeliveryId, Job};
use prometheus_client::metrics::counter::Counter;
use service_kit::publishing::{Publication, Publishing};
use time::OffsetDateTime;

use crate::{
    line::{
        bundle::{FollowUp, JobAck, Origin},
        context::LineContext,
        in_flight::UnderWay,
        outcome::{Abandoned, DeadReason, End},
    },
    metrics::NotAttempted,
};

/// Acts on the ends of jobs.
pub(crate) struct Settler {
    pub(crate) publisher: Publisher,
    pub(crate) context: Arc<LineContext>,
}

impl Settler {
    /// Acts on the ends of jobs. Removes each job before its follow-up is published, as this same process may take the
    /// follow-up. Duplicates that end with their job are acknowledged with it: nobody needs these, and one of them can still
    /// be acknowledged if the first message's connection is lost. Returns the jobs that continue with a duplicate, to be
    /// judged, when all is acknowledged.
    pub(crate) async fn end_all(&self, ends: Vec<(UnderWay, End)>) -> Vec<UnderWay> {
        let (mut parts, mut continued) = (Vec::with_capacity(ends.len()), Vec::new());
        for (under_way, end) in ends {
            let job = under_way.job();
            if let End::Dead(dead) = &end
                && self.note_dead(job, dead).await.is_err()
            {
                continue;
            }
            let (acks, next) = under_way.end(end.duplicates());
            parts.extend(JobAck::attach_follow_up(acks, end.left().map(|end| FollowUp::Of(job, end))));
            continued.extend(next);
        }
        self.publish_then_ack(parts, None).await;
        continued
    }

    /// The end of a job whose delivery the ledger does not have: retention or an operator has deleted it, or it is lost.
    pub(crate) async fn end_of_unknown(&self, job: Job) -> Result<End, Abandoned> {
        let LineContext { database, keep, metrics, .. } = &*self.context;
        // Retention goes by the earlier clock.
        if is_past(job.delivery, database.now().min(OffsetDateTime::now_utc()), *keep) {
            metrics.count_not_attempted(NotAttempted::Expired);
            return Ok(End::Done);
        }
        // The broker may hold the job of a delivery for hours after that was cancelled.
        let look = || self.context.ledger.delivery_has_ended(job.delivery);
        if !self.context.until_done("looking why a delivery is not there", look).await? {
            return Ok(End::Dead(DeadReason::UnknownDelivery));
        }
        metrics.count_not_attempted(NotAttempted::Stale);
        Ok(End::Done)
    }

    /// Notes in the ledger that a job is about to be parked, so that lost-job detection does not publish it.
    async fn note_dead(&self, job: Job, dead: &DeadReason) -> Result<(), Abandoned> {
        let (reason, detail) = (dead.as_str(), dead.detail());
        tracing::error!(delivery = %job.delivery, attempt = job.attempt, reason, detail, "a job is moved to the dead-letter queue");
        self.context.metrics.count_not_attempted(reason);
        self.context.until_done("noting a dead job", || self.context.ledger.job_park(job.delivery, reason)).await
    }

    /// The dead letter with a message's content.
    pub(crate) fn dead_letter(&self, body: Vec<u8>, dead: &DeadReason) -> Outgoing {
        let headers = BTreeMap::from([
            ("x-dead-reason".to_owned(), dead.as_str().to_owned()),
            ("x-dead-detail".to_owned(), dead.detail()),
        ]);
        Outgoing { routing_key: self.context.names.dead(), body, headers, ..Default::default() }
    }

    /// Marks parts as done. Their own effects have to be durable. Publishes the follow-ups of the messages that are
    /// done with them, waits for the confirms, and acknowledges each message once its follow-ups are confirmed. Returns
    /// when all are acknowledged, or this was abandoned. A queue that refuses may take long, but holds up its own
    /// messages only.
    ///
    /// The follow-ups of a message whose connection is lost are not published. A lost connection stays lost, so the message
    /// cannot be acknowledged by mistake. It is redelivered, and its jobs leave their follow-ups again. `acknowledged` counts
    /// the messages that are acknowledged.
    pub(crate) async fn publish_then_ack(
        &self,
        parts: impl IntoIterator<Item = (JobAck, Option<FollowUp>)>,
        acknowledged: Option<&Counter>,
    ) {
        let (mut publications, mut ready) = (Vec::new(), Vec::new());
        for (part, follow_up) in parts {
            let Some((acker, origin, left)) = part.done(follow_up) else { continue };
            if left.is_empty() {
                ready.push(acker);
                continue;
            }
            let source = Arc::new(acker);
            let publication = |one| Publication { sources: vec![Arc::clone(&source)], content: (origin, one) };
            publications.extend(left.into_iter().map(publication));
        }
        let acknowledge = |ackers: Vec<Acker>| {
            if let Some(count) = acknowledged {
                count.inc_by(u64::try_from(ackers.len()).unwrap_or_default());
            }
            Acker::ack_all(ackers)
        };
        let (publisher, abandon) = (&self.publisher, &self.context.abandon);
        Publishing { what: "publishing follow-ups of jobs", publisher, abandon }
            .until_confirmed(publications, ready, |one| self.message_of(one), acknowledge)
            .await;
    }

    /// The message of a follow-up. `None` if the connection of its source is lost.
    fn message_of<'p>(&self, one: &'p Publication<Acker, (Origin, FollowUp)>) -> Option<Cow<'p, Outgoing>> {
        let Publication { sources, content: (origin, follow_up) } = one;
        if !sources.iter().all(|source| source.is_usable()) {
            return None;
        }
        let (job, end) = match follow_up {
            FollowUp::Of(job, end) => (job, end),
            FollowUp::Message(message) => return Some(Cow::Borrowed(message)),
        };
        let LineContext { names, schedule, database, .. } = &*self.context;
        let job_at = |job: Job, due| names.job_at(job, due, database.now(), schedule);
        let message = match end {
            End::Done | End::NotNeeded => return None,
            End::Retry(due) => job_at(job.next(), *due),
            End::Again(due, delivery_count) => job_at(*job, *due).carrying(*delivery_count),
            End::Dead(dead) => self.dead_letter(job.to_bytes(), dead),
        };
        Some(Cow::Owned(origin.marked(message)))
    }
}

/// Whether a delivery is so old that retention may have deleted it. Its job is then a late duplicate.
fn is_past(delivery: DeliveryId, now: OffsetDateTime, keep: Duration) -> bool {
    let before = now.checked_sub(keep.try_into().unwrap_or(time::Duration::MAX));
    before.is_some_and(|before| delivery.as_uuid() < DeliveryId::bound_at(before))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn retention_takes_what_fired_before_it() {
        let (now, keep) = (datetime!(2026-03-31 12:00 UTC), Duration::from_secs(30 * 24 * 60 * 60));
        let of = |at: OffsetDateTime| DeliveryId::from(DeliveryId::bound_at(at));
        assert!(is_past(of(datetime!(2026-03-01 11:59:59.999 UTC)), now, keep));
        assert!(!is_past(of(datetime!(2026-03-01 12:00 UTC)), now, keep));
        assert!(!is_past(of(now), now, keep));
        assert!(is_past(DeliveryId::from(uuid::Uuid::nil()), now, keep));
        assert!(!is_past(DeliveryId::from(uuid::Uuid::max()), now, keep));
    }
}
