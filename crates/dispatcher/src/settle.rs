//! The end of every job: publishes its follow-up, waits for the confirm, acknowledges its messages.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use broker::{Acker, Outgoing, Publisher};
use domain::{DeliveryId, Job};
use service_kit::publishing::{Publication, Publishing};
use time::OffsetDateTime;

use crate::{
    abandoned::Abandoned,
    end::{DeadReason, End, NotAttempted},
    in_flight::Receipt,
    shared::Shared,
    shared_ack::{FollowUp, Origin, SharedAck},
};

/// Acts on the ends of jobs.
pub(crate) struct Settler {
    pub(crate) publisher: Publisher,
    pub(crate) shared: Arc<Shared>,
}

impl Settler {
    /// Acts on the end of one job. Returns the receipt of a duplicate that takes its place, and is to be judged.
    pub(crate) async fn end_one(&self, job: Job, end: End) -> Option<Receipt> {
        if matches!(end, End::GiveBack) {
            drop(self.shared.in_flight.finish(job));
            return None;
        }
        if !matches!(end, End::NotNeeded | End::Later(_) | End::Uncharged(_)) {
            self.end_all(vec![(job, end)]).await;
            return None;
        }
        let follow_up = self.follow_up(job, &end).await.ok()?;
        let (ack, duplicate) = self.shared.in_flight.finish_message(job)?;
        self.publish_then_ack(vec![(ack, follow_up)]).await;
        duplicate
    }

    /// Acts on the ends of many jobs at once. Their duplicates end with them: nobody needs these, and one of them can
    /// still be acknowledged if the first message's connection is lost. Removes each job before its follow-up is
    /// published, as this same process may take the follow-up. Keeps the ends until all is acknowledged: one may
    /// hold a suspect's turn.
    /// Returns `None` when this was abandoned.
    pub(crate) async fn end_all(&self, ends: Vec<(Job, End)>) -> Option<()> {
        let mut parts = Vec::new();
        for (job, end) in &ends {
            if let Ok(follow_up) = self.follow_up(*job, end).await {
                parts.extend(SharedAck::attach_follow_up(self.shared.in_flight.finish(*job), follow_up));
            }
        }
        self.publish_then_ack(parts).await
    }

    /// The message that a job leaves, if any.
    async fn follow_up(&self, job: Job, end: &End) -> Result<Option<FollowUp>, Abandoned> {
        let Shared { database, keep, .. } = &*self.shared;
        Ok(match end {
            End::Done | End::NotNeeded => None,
            End::Retry(due) => Some(FollowUp::Job(job.next(), *due, 0)),
            End::Later(due) => Some(FollowUp::Job(job, *due, self.shared.in_flight.handed_out_before(job))),
            End::Uncharged(due) => {
                let handed_out = self.shared.in_flight.handed_out_before(job).saturating_add(1);
                Some(FollowUp::Job(job, *due, handed_out))
            }
            // Retention goes by the earlier clock.
            End::Unknown if is_past(job.delivery, database.now().min(OffsetDateTime::now_utc()), *keep) => {
                self.shared.metrics.not_attempted(NotAttempted::Expired);
                None
            }
            End::Unknown if self.is_erased(job).await? => {
                self.shared.metrics.not_attempted(NotAttempted::Erased);
                None
            }
            End::Unknown => Some(self.dead_letter(job, &DeadReason::UnknownDelivery).await?),
            End::Dead(dead) => Some(self.dead_letter(job, dead).await?),
            End::Hold(_) | End::JudgeAgain | End::GiveBack | End::Abandoned => return Err(Abandoned),
        })
    }

    /// Whether an operator had the delivery erased. The broker may hold its job for hours after.
    async fn is_erased(&self, job: Job) -> Result<bool, Abandoned> {
        let look = || self.shared.ledger.delivery_is_erased(job.delivery);
        self.shared.until_done("looking for an erased delivery", look).await
    }

    /// Tells the ledger first, so that lost-job detection does not take the job for lost.
    async fn dead_letter(&self, job: Job, dead: &DeadReason) -> Result<FollowUp, Abandoned> {
        let (reason, detail) = (dead.as_str(), dead.detail());
        tracing::error!(delivery = %job.delivery, attempt = job.attempt, reason, detail, "a job is moved to the dead-letter queue");
        self.shared.metrics.not_attempted(reason);
        let park = || self.shared.ledger.job_park(job.delivery, reason);
        self.shared.until_done("noting a dead job", park).await?;
        Ok(FollowUp::Message(self.dead_letter_of(job.to_bytes(), dead)))
    }

    /// The dead letter with a message's content.
    pub(crate) fn dead_letter_of(&self, body: Vec<u8>, dead: &DeadReason) -> Outgoing {
        let headers = BTreeMap::from([
            ("x-dead-reason".to_owned(), dead.as_str().to_owned()),
            ("x-dead-detail".to_owned(), dead.detail()),
        ]);
        Outgoing { queue: self.shared.names.dead(), body, headers, ..Default::default() }
    }

    /// Marks parts as done. Their own effects have to be durable. Publishes the follow-ups of the messages that are
    /// done with them, waits for the confirms, and acknowledges each message once its follow-ups are confirmed. Returns
    /// when all are acknowledged. A queue that refuses may take long, but holds up its own messages only. Returns
    /// `None` when this was abandoned.
    ///
    /// The follow-ups of a message whose connection is lost are not published. The message is redelivered, and its jobs
    /// leave them again.
    pub(crate) async fn publish_then_ack(&self, parts: Vec<(SharedAck, Option<FollowUp>)>) -> Option<()> {
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
        let Self { publisher, shared, .. } = self;
        let publishing = Publishing { what: "publishing follow-ups of jobs", publisher, abandon: &shared.abandon };
        publishing
            .until_confirmed(publications, ready, |one| self.message_of(one).map(Cow::Owned), Acker::ack_all)
            .await
    }

    /// The message of a follow-up, unless the connection of its source is lost. A lost connection stays lost, so the
    /// source cannot be acknowledged by mistake, and is redelivered.
    fn message_of(&self, publication: &Publication<Acker, (Origin, FollowUp)>) -> Option<Outgoing> {
        let Publication { sources, content: (origin, follow_up) } = publication;
        if !sources.iter().all(|source| source.is_usable()) {
            return None;
        }
        let Shared { names, schedule, database, .. } = &*self.shared;
        let message = match follow_up {
            FollowUp::Job(job, due, handed_out_before) => {
                names.job_at(*job, *due, database.now(), schedule).carrying(*handed_out_before)
            }
            FollowUp::Message(message) => message.clone(),
        };
        Some(match origin {
            Origin::Bulk => message.of_bulk(),
            Origin::Other => message,
        })
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
