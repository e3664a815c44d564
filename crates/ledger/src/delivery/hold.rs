//! Holds jobs: they wait in the ledger, without a message, as their webhook is paused or too slow.

use std::time::Duration;

use diesel::sql_types::{Bool, Double, Int4, SmallInt, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, WebhookId};
use uuid::Uuid;

use crate::{batch::batch_statement, connect::pool::Ledger, error::LedgerError};

/// A job to be held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its webhook.
    pub webhook: WebhookId,
    /// Its delivery.
    pub delivery: DeliveryId,
    /// The number of earlier deliveries of the job by the broker.
    pub delivery_count: u32,
    /// True if the job was held before, and released too early.
    pub is_again: bool,
    /// The rate at which the job is released while its webhook is active. `None`: the job is held only if the
    /// webhook is paused.
    pub release: Option<ReleaseRate>,
}

/// The rate at which held jobs of an active webhook are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseRate {
    /// The number of jobs at first. It grows as long as none of the jobs has to be held again.
    pub batch: u16,
    /// The time since the last ones.
    pub pause: Duration,
}

batch_statement! {
    HoldJobs -> (Int4,);
    job { number: i32 => Int4, webhook: Uuid => SqlUuid, delivery: Uuid => SqlUuid, batch: i32 => Int4, pause: f64 => Double, delivery_count: i16 => SmallInt, is_again: bool => Bool };
    include_str!("hold_jobs.sql")
}

impl HoldJobs {
    pub(crate) fn of(jobs: &[Held]) -> Self {
        let release = |job: &Held| job.release.map_or((0, 0.0), |one| (one.batch.into(), one.pause.as_secs_f64()));
        Self {
            number: (0..).zip(jobs).map(|(number, _)| number).collect(),
            webhook: jobs.iter().map(|job| job.webhook.as_uuid()).collect(),
            delivery: jobs.iter().map(|job| job.delivery.as_uuid()).collect(),
            batch: jobs.iter().map(|job| release(job).0).collect(),
            pause: jobs.iter().map(|job| release(job).1).collect(),
            is_again: jobs.iter().map(|job| job.is_again).collect(),
            delivery_count: jobs.iter().map(|job| i16::try_from(job.delivery_count).unwrap_or(i16::MAX)).collect(),
        }
    }

    /// Returns for each job, in their order, whether it is one of the held ones, by their numbers.
    pub(crate) fn held(&self, numbers: Vec<(i32,)>) -> Vec<bool> {
        let mut held = vec![false; self.number.len()];
        for place in numbers.into_iter().filter_map(|(number,)| usize::try_from(number).ok()) {
            held[place] = true;
        }
        held
    }
}

impl Ledger {
    /// Holds the jobs of deliveries. Returns for each, in their order, whether it is held: not one of a deleted webhook, nor
    /// one that a pause was to hold and that is over.
    ///
    /// # Errors
    /// When the database does not answer, or does not take the data of a job's rows ([`LedgerError::of_row`]).
    pub async fn jobs_hold(&self, jobs: &[Held]) -> Result<Vec<bool>, LedgerError> {
        let statement = HoldJobs::of(jobs);
        let held = self.run("jobs_hold", async |conn| (&statement).load(conn).await).await;
        Ok(statement.held(self.judged(&statement, held).await?))
    }
}
