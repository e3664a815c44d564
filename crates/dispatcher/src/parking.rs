//! Where a job goes that is not to be attempted now.

use std::{collections::BTreeMap, time::Duration};

use broker::{Names, Outgoing};
use domain::{Job, JobError, RetrySchedule};
use time::OffsetDateTime;

/// The message that makes `job` come back when it is `due`: from the queue of the retry delay that fits, or at once.
/// Lateness does not add up, as the message expires at the time that is due, not after a fixed delay.
pub(crate) fn until(due: OffsetDateTime, job: Job, names: &Names, schedule: &RetrySchedule) -> Outgoing {
    let wait = wait(due, OffsetDateTime::now_utc());
    let body = job.to_bytes();
    if wait.is_zero() {
        return Outgoing { queue: names.deliveries(), body, ..Default::default() };
    }
    let gap = schedule.gap_for(wait);
    Outgoing { queue: names.retry(gap), body, expires_in: Some(wait.min(gap)), ..Default::default() }
}

/// The time left, in whole milliseconds, rounded up so that nothing comes early.
fn wait(due: OffsetDateTime, now: OffsetDateTime) -> Duration {
    let left = Duration::try_from(due - now).unwrap_or_default();
    Duration::from_millis(u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// The message that keeps what is no job for people to look at.
pub(crate) fn dead(body: Vec<u8>, error: &JobError, names: &Names) -> Outgoing {
    let headers = BTreeMap::from([
        ("x-dead-reason".to_owned(), error.reason().to_owned()),
        ("x-dead-detail".to_owned(), error.to_string()),
    ]);
    Outgoing { queue: names.dead(), body, headers, expires_in: None }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn the_wait_is_rounded_up_and_never_negative() {
        let now = datetime!(2026-03-01 09:30 UTC);
        assert_eq!(wait(now + Duration::from_micros(1_500), now), Duration::from_millis(2));
        assert_eq!(wait(now + Duration::from_secs(60), now), Duration::from_secs(60));
        assert_eq!(wait(now, now), Duration::ZERO);
        assert_eq!(wait(now - Duration::from_secs(1), now), Duration::ZERO);
    }

    #[test]
    fn a_retry_waits_in_the_queue_of_its_delay_and_an_overdue_one_not_at_all() {
        let (names, schedule) = (Names::new("webhooks", "events"), RetrySchedule::default());
        let job = Job { delivery: DELIVERY.parse().unwrap(), attempt: 2 };
        let now = OffsetDateTime::now_utc();
        let parked = until(now + Duration::from_secs(235), job, &names, &schedule);
        assert_eq!(parked.queue, "webhooks.retry.240s");
        assert!(parked.expires_in.unwrap() <= Duration::from_secs(235));
        let overdue = until(now, job, &names, &schedule);
        assert_eq!((overdue.queue.as_str(), overdue.expires_in), ("webhooks.deliveries", None));
    }

    const DELIVERY: &str = "019ca8bb-b63b-81e0-9e67-8295475fb864";
}
