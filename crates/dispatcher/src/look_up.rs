//! Reads what the ledger has of jobs: one read for a batch.

use std::{collections::HashMap, sync::Arc};

use domain::{DeliveryId, Job};
use ledger::{Due, Ledger};
use service_kit::connections::persist;
use tokio_util::sync::CancellationToken;

use crate::{
    end::End,
    in_flight::Receipt,
    lane::LaneKind,
    metrics::{Metrics, size},
    stamps::Stamps,
};

/// What the ledger has of a job's delivery.
#[derive(Clone)]
pub(crate) enum Found {
    Due(Box<Due>),
    /// This version cannot read a column of its row.
    Unreadable(&'static str),
    Nothing,
}

pub(crate) struct LookUp {
    ledger: Ledger,
    stamps: Arc<Stamps>,
    metrics: Metrics,
    abandon: CancellationToken,
}

impl LookUp {
    /// `abandon` is cancelled when the shutdown's deadline has passed.
    pub(crate) const fn new(ledger: Ledger, stamps: Arc<Stamps>, metrics: Metrics, abandon: CancellationToken) -> Self {
        Self { ledger, stamps, metrics, abandon }
    }

    /// Reads the deliveries of jobs. Returns what was found, in the order of the jobs, or `None` when this was abandoned.
    ///
    /// Stamps the webhooks of jobs from the slow lane: more of their jobs may be in it.
    pub(crate) async fn all(&self, jobs: &[(Job, Receipt)]) -> Option<Vec<Found>> {
        let ids: Vec<_> = jobs.iter().map(|(job, _)| job.delivery).collect();
        if ids.is_empty() {
            return Some(Vec::new());
        }
        self.metrics.read_batch.observe(size(ids.len()));
        let loaded = persist("reading deliveries", &self.abandon, || self.ledger.due_load(&ids)).await?;
        let unreadable = loaded.unreadable.into_iter().map(|one| (one.id, Found::Unreadable(one.column)));
        let mut found: HashMap<DeliveryId, Found> = unreadable.collect();
        found.extend(loaded.due.into_iter().map(|due| (due.id, Found::Due(Box::new(due)))));
        let webhook = |(job, receipt): &(Job, Receipt)| match (receipt.lane, found.get(&job.delivery)?) {
            (LaneKind::Slow, Found::Due(due)) => Some(due.destination.webhook),
            _ => None,
        };
        let in_slow_lane: Vec<_> = jobs.iter().filter_map(webhook).collect();
        self.stamps.set(&in_slow_lane).await?;
        Some(ids.iter().map(|id| found.get(id).cloned().unwrap_or(Found::Nothing)).collect())
    }

    /// The same for one job.
    pub(crate) async fn one(&self, job: Job, receipt: Receipt) -> Result<Found, End> {
        self.all(&[(job, receipt)]).await.and_then(|mut found| found.pop()).ok_or(End::Abandoned)
    }
}
