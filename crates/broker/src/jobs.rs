//! Where jobs go: at once to the dispatchers, or to the queue of a delay until they are due.

use std::time::Duration;

use domain::{Job, RetrySchedule};
use time::OffsetDateTime;

use crate::{message::Outgoing, topology::Names};

impl Names {
    /// The message that makes `job` be done now.
    #[must_use]
    pub fn job(&self, job: Job) -> Outgoing {
        Outgoing { queue: self.deliveries(), body: job.to_bytes(), ..Default::default() }
    }

    /// The message that makes `job` come when it is `due`: from the queue of the retry delay that fits, or at once.
    /// Lateness does not add up, as the message expires at the time that is due, not after a fixed delay.
    #[must_use]
    pub fn job_at(&self, job: Job, due: OffsetDateTime, now: OffsetDateTime, schedule: &RetrySchedule) -> Outgoing {
        let wait = wait(due, now);
        if wait.is_zero() {
            return self.job(job);
        }
        let gap = schedule.gap_for(wait);
        Outgoing { queue: self.retry(gap), expires_in: Some(wait.min(gap)), ..self.job(job) }
    }
}

/// The time left, in whole milliseconds, rounded up so that nothing comes early.
fn wait(due: OffsetDateTime, now: OffsetDateTime) -> Duration {
    let left = Duration::try_from(due - now).unwrap_or_default();
    Duration::from_millis(u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

    #[test]
    fn the_wait_is_rounded_up_and_never_negative() {
        assert_eq!(wait(NOW + Duration::from_micros(1_500), NOW), Duration::from_millis(2));
        assert_eq!(wait(NOW + Duration::from_secs(60), NOW), Duration::from_secs(60));
        assert_eq!(wait(NOW, NOW), Duration::ZERO);
        assert_eq!(wait(NOW - Duration::from_secs(1), NOW), Duration::ZERO);
    }

    #[test]
    fn a_retry_waits_in_the_queue_of_its_delay_and_an_overdue_one_not_at_all() {
        let (names, schedule) = (Names::new("webhooks", "events"), RetrySchedule::default());
        let job = Job { delivery: uuid::Uuid::from_u128(7).into(), attempt: 2 };
        let parked = names.job_at(job, NOW + Duration::from_secs(235), NOW, &schedule);
        assert_eq!(parked.queue, "webhooks.retry.240s");
        assert_eq!(parked.expires_in, Some(Duration::from_secs(235)));
        let overdue = names.job_at(job, NOW, NOW, &schedule);
        assert_eq!((overdue.queue.as_str(), overdue.expires_in), ("webhooks.deliveries", None));
        assert_eq!(overdue.body, job.to_bytes());
    }
}
