//! Reads what the ledger has of jobs: one read for a batch.

use std::{collections::HashMap, sync::Arc};

use domain::{DeliveryId, Job};
use ledger::LoadedDelivery;
use tokio::time::Instant;

use crate::{abandoned::Abandoned, in_flight::Receipt, metrics::size, shared::Shared};

/// What the ledger has of a job's delivery.
#[derive(Clone)]
pub(crate) enum Found {
    Delivery(Box<LoadedDelivery>),
    /// Its row cannot be read, for the given reason.
    Unreadable(String),
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

    async fn read(&self, ids: &[DeliveryId]) -> Result<Vec<Found>, Abandoned> {
        let ledger = &self.shared.ledger;
        let mut found: HashMap<DeliveryId, Found> = HashMap::with_capacity(ids.len());
        let park = |id: &DeliveryId, fault| drop(found.insert(*id, Found::Unreadable(fault)));
        let read = self.shared.in_halves("reading deliveries", ids, |part| ledger.deliveries_load(part), park).await?;
        let loaded = read.into_iter().flatten();
        found.extend(loaded.map(|delivery| (delivery.id, Found::Delivery(Box::new(delivery)))));
        Ok(ids.iter().map(|id| found.get(id).cloned().unwrap_or(Found::Nothing)).collect())
    }
}
