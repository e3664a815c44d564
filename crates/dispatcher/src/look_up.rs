//! Reads what the ledger has of jobs: one read for a batch.

use std::sync::Arc;

use domain::{DeliveryId, Job};
use ledger::LoadedDelivery;
use tokio::time::Instant;

use crate::{
    abandoned::Abandoned,
    end::{DeadReason, End, Stop},
    metrics::size,
    shared::Shared,
};

/// What the ledger has of a job's delivery.
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
    pub(crate) async fn all(&self, ids: &[DeliveryId]) -> Result<(Vec<Found>, Instant), Abandoned> {
        self.shared.metrics.read_batch.observe(size(ids.len()));
        Ok((self.read(ids).await?, Instant::now()))
    }

    /// The same for one job.
    pub(crate) async fn one(&self, job: Job) -> Result<(Found, Instant), Abandoned> {
        let (mut found, read_at) = self.all(&[job.delivery]).await?;
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
    pub(crate) async fn alone(&self, job: Job) -> Result<Found, Stop> {
        let ids = [job.delivery];
        match self.shared.alone("reading a delivery", || self.shared.ledger.deliveries_load(&ids)).await? {
            Ok(loaded) => Ok(Found::of(loaded.into_iter().next().flatten())),
            Err(fault) => Err(End::Dead(DeadReason::Unreadable(fault)).into()),
        }
    }

    async fn read(&self, ids: &[DeliveryId]) -> Result<Vec<Found>, Abandoned> {
        let ledger = &self.shared.ledger;
        let read = self.shared.in_halves("reading deliveries", ids, |part| ledger.deliveries_load(part)).await?;
        Ok(read.into_iter().map(|one| one.map_or(Found::Unreadable, Found::of)).collect())
    }
}

impl Found {
    fn of(loaded: Option<LoadedDelivery>) -> Self {
        loaded.map_or(Self::Nothing, |delivery| Self::Delivery(Box::new(delivery)))
    }
}
