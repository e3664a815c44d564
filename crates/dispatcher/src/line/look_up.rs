//! Reads what the ledger has of jobs: one read for a batch.

use domain::{DeliveryId, Job};
use ledger::LoadedDelivery;
use tokio::time::Instant;

use crate::line::{
    context::LineContext,
    outcome::{Abandoned, DeadReason, End, Stop},
};

/// What the ledger has of a job's delivery.
pub(crate) enum Lookup {
    Delivery(Box<LoadedDelivery>),
    /// Its row could not be read.
    Unreadable,
    Nothing,
}

impl LineContext {
    /// Reads the deliveries of jobs. Returns what was found, in the order of the jobs, and when it was read.
    pub(crate) async fn look_up(&self, ids: &[DeliveryId]) -> Result<(Vec<Lookup>, Instant), Abandoned> {
        let read = self.in_halves("reading deliveries", ids, |part| self.ledger.deliveries_load(part)).await?;
        let found = read.into_iter().map(|one| one.map_or(Lookup::Unreadable, Lookup::of)).collect();
        Ok((found, Instant::now()))
    }

    /// The same for one job.
    pub(crate) async fn look_up_one(&self, job: Job) -> Result<(Lookup, Instant), Abandoned> {
        let (mut found, read_at) = self.look_up(&[job.delivery]).await?;
        Ok((found.pop().unwrap_or(Lookup::Nothing), read_at))
    }

    /// Reads the delivery of a job once more that could not be read.
    ///
    /// # Errors
    /// The job is to be parked.
    pub(crate) async fn look_up_alone(&self, job: Job) -> Result<Lookup, Stop> {
        let ids = [job.delivery];
        match self.alone("reading a delivery", || self.ledger.deliveries_load(&ids)).await? {
            Ok(loaded) => Ok(Lookup::of(loaded.into_iter().next().flatten())),
            Err(fault) => Err(End::Dead(DeadReason::Unreadable(fault)).into()),
        }
    }
}

impl Lookup {
    fn of(loaded: Option<LoadedDelivery>) -> Self {
        loaded.map_or(Self::Nothing, |delivery| Self::Delivery(Box::new(delivery)))
    }
}
