//! Reads what the ledger has of jobs: one read for a batch.

use std::{collections::HashMap, sync::Arc};

use domain::{DeliveryId, Job};
use ledger::LoadedDelivery;
use tokio::time::Instant;

use crate::{
    abandoned::Abandoned,
    end::{DeadReason, End},
    in_flight::Receipt,
    metrics::size,
    shared::Shared,
};

/// What the ledger has of a job's delivery.
#[derive(Clone)]
pub(crate) enum Found {
    Delivery(Box<LoadedDelivery>),
    /// Its row could not be read.
    Unreadable,
    Nothing,
}

pub(crate) struct LookUp {
    pub(crate) shared: Arc<Shared>,
}

impl LookUp {
    /// Reads the deliveries of jobs. Returns what was found, in the order of the jobs, and when it was read.
    pub(crate) async fn all(&self, jobs: &[(Job, Receipt)]) -> Result<(Vec<Found>, Instant), Abandoned> {
        self.shared.metrics.read_batch.observe(size(jobs.len()));
        let ids: Vec<_> = jobs.iter().map(|(job, _)| job.delivery).collect();
        Ok((self.read(&ids).await?, Instant::now()))
    }

    /// The same for one job.
    pub(crate) async fn one(&self, job: Job, receipt: Receipt) -> Result<(Found, Instant), Abandoned> {
        let (mut found, read_at) = self.all(&[(job, receipt)]).await?;
        Ok((found.pop().unwrap_or(Found::Nothing), read_at))
    }

    /// Reads the delivery of a job again that was looked up before. Waits for nothing else: what it returns is fresh.
    pub(crate) async fn reread(&self, job: Job) -> Result<Found, Abandoned> {
        Ok(self.read(&[job.delivery]).await?.pop().unwrap_or(Found::Nothing))
    }

    /// Reads the delivery of a job once more that could not be read.
    ///
    /// # Errors
    /// The job is to be parked.
    pub(crate) async fn alone(&self, job: Job) -> Result<Found, End> {
        let ids = [job.delivery];
        match self.shared.alone("reading a delivery", || self.shared.ledger.deliveries_load(&ids)).await? {
            Ok(loaded) => Ok(loaded.into_iter().next().map_or(Found::Nothing, |one| Found::Delivery(Box::new(one)))),
            Err(fault) => Err(End::Dead(DeadReason::Unreadable(fault))),
        }
    }

    async fn read(&self, ids: &[DeliveryId]) -> Result<Vec<Found>, Abandoned> {
        let ledger = &self.shared.ledger;
        let read = self.shared.in_halves("reading deliveries", ids, |part| ledger.deliveries_load(part));
        let (loaded, faulty) = read.await?;
        let mut found: HashMap<DeliveryId, Found> = faulty.into_iter().map(|id| (*id, Found::Unreadable)).collect();
        let loaded = loaded.into_iter().flatten();
        found.extend(loaded.map(|delivery| (delivery.id, Found::Delivery(Box::new(delivery)))));
        Ok(ids.iter().map(|id| found.get(id).cloned().unwrap_or(Found::Nothing)).collect())
    }
}
