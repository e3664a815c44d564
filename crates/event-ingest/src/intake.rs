//! One batch of events: read, store, publish, acknowledge.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use broker::{Acker, Names, Outgoing, Publisher, Received};
use domain::{Job, Redelivered};
use ledger::Ledger;
use service_kit::connections::persist;
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    plan::{Plan, Usable, rejected},
    rush::Rush,
};

/// An acknowledgement is another write of the broker's, and is not urgent, as the jobs are, which are on their way to a
/// dispatcher now: unless there is a rush, it lets them go first, for one to two milliseconds by the runtime's clock. At 200
/// events a second the median takes 5 % longer without it.
const ACK_DELAY: Duration = Duration::from_millis(1);

#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) publisher: Publisher,
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
    pub(crate) data_limit: usize,
    pub(crate) rush: Rush,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Intake {
    /// Takes a batch to its end. Gives the permit to store, which there is in a rush only, back once it is stored, and the
    /// other once there is nothing left to do but to acknowledge. When that is abandoned, nothing is acknowledged and every
    /// message comes again.
    pub(crate) async fn take(
        self,
        batch: Vec<Received>,
        under_way: OwnedSemaphorePermit,
        storing: Option<OwnedSemaphorePermit>,
    ) {
        let began = Instant::now();
        self.metrics.batch_size.observe(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
        let (mut usable, mut outgoing, mut ackers) = (Vec::new(), Vec::new(), Vec::new());
        for message in batch {
            ackers.push(message.acker);
            match Usable::parse(&message.body, Redelivered::from(message.redelivered), self.data_limit) {
                Ok(event) => usable.push(event),
                Err(rejection) => {
                    tracing::warn!(reason = rejection.reason(), detail = %rejection, "an unusable event is parked");
                    self.metrics.event("rejected");
                    let (queue, now) = (self.names.rejected(), OffsetDateTime::now_utc());
                    outgoing.push(rejected(queue, message.body, message.routing_key, &rejection, now));
                }
            }
        }
        let Some(jobs) = self.store(usable).await else { return };
        drop(storing);
        outgoing.extend(jobs);
        let published = persist("publishing jobs", &self.abandon, || self.publisher.publish(&outgoing));
        if published.await.is_none() {
            return;
        }
        self.metrics.batch_seconds.observe(began.elapsed().as_secs_f64());
        if !outgoing.is_empty() && !self.rush.is_on(Instant::now()) {
            drop(under_way);
            tokio::time::sleep(ACK_DELAY).await;
        }
        Acker::ack_all(ackers).await;
    }

    /// Stores events and deliveries; returns the jobs to be published.
    async fn store(&self, usable: Vec<Usable>) -> Option<Vec<Outgoing>> {
        if usable.is_empty() {
            return Some(Vec::new());
        }
        let (ledger, abandon) = (&self.ledger, &self.abandon);
        let (plan, mut tries) = (Plan::new(usable), 0_u32);
        let store = || {
            tries += 1;
            ledger.events_store(&plan.events)
        };
        let stored = persist("storing events", abandon, store).await?;
        for outcome in plan.outcomes(&stored) {
            self.metrics.event(outcome);
        }
        self.metrics.deliveries.inc_by(u64::try_from(stored.deliveries.len()).unwrap_or_default());
        let mut due: HashSet<_> = stored.deliveries.into_iter().map(|(_, id)| id).collect();
        // A try whose answer got lost may have stored what the last one found there already.
        let mut doubtful = plan.again();
        if tries > 1 {
            doubtful.extend(plan.all());
        }
        if !doubtful.is_empty() {
            let find = || ledger.deliveries_untried(&doubtful);
            due.extend(persist("finding untried deliveries", abandon, find).await?);
        }
        let jobs: Vec<_> = due.into_iter().map(|id| Job { delivery: id, attempt: 1 }).collect();
        match self.rush.count(jobs.len(), Instant::now()) {
            true => Some(self.names.jobs_together(&jobs)),
            false => Some(jobs.into_iter().map(|job| self.names.job(job)).collect()),
        }
    }
}
