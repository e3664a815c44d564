//! Routes jobs: to the dispatchers immediately, or to a retry queue until they are due. Routes notices.

use std::time::Duration;

use domain::{Job, Notice, RetrySchedule};
use time::OffsetDateTime;

use crate::{message::Outgoing, topology::Names};

/// The maximum of jobs in one message. More would save little, and would wait where no other dispatcher can take them.
const JOBS_PER_MESSAGE: usize = 8;

/// The number of jobs in one call from which on several share each message.
const MIN_BUNDLED_JOBS: usize = 100;

impl Names {
    /// The message for a `job` that is due now.
    pub fn job(&self, job: Job) -> Outgoing {
        Outgoing { routing_key: self.main(), body: job.to_bytes(), ..Default::default() }
    }

    /// The messages for the jobs of `items`, which are due now, each with its item.
    pub fn jobs_alone<'i, T>(&self, items: &'i [T], job: impl Fn(&T) -> Job) -> Vec<(Outgoing, &'i [T])> {
        messages(&self.main(), items, 1, job)
    }

    /// The same with several jobs in each message. For high load: a message costs the broker and both ends more than its
    /// content.
    pub fn jobs_together<'i, T>(&self, items: &'i [T], job: impl Fn(&T) -> Job) -> Vec<(Outgoing, &'i [T])> {
        messages(&self.main(), items, JOBS_PER_MESSAGE, job)
    }

    /// The same for the bulk lane, so that no job of the main lane waits behind these.
    pub fn jobs_in_bulk<'i, T>(&self, items: &'i [T], job: impl Fn(&T) -> Job) -> Vec<(Outgoing, &'i [T])> {
        messages(&self.bulk(), items, JOBS_PER_MESSAGE, job)
    }

    /// The message of a notice for the business application. Its routing key is its type; the service's own exchange passes it
    /// on to the topic exchange for notices.
    pub fn notice(&self, notice: &Notice) -> Outgoing {
        let (routing_key, id) = (notice.notice_type.as_str().to_owned(), Some(notice.notice_id));
        Outgoing { routing_key, id, body: notice.to_bytes(), ..Default::default() }
    }

    /// The messages for jobs that were held, one in each, with its item: each may wait for a slow receiver.
    /// `job` returns the job of an item, and the number of its earlier deliveries by the broker.
    pub fn jobs_released<'i, T>(&self, items: &'i [T], job: impl Fn(&T) -> (Job, u32)) -> Vec<(Outgoing, &'i [T])> {
        let released = messages(&self.slow(), items, 1, |item| job(item).0).into_iter();
        released.map(|(message, one)| (message.carrying(one.first().map_or(0, |item| job(item).1)), one)).collect()
    }

    /// The messages for the jobs of `items`, which are due now, each with its items. Very many at once go in bulk.
    pub fn messages_due<'i, T>(&self, items: &'i [T], job: impl Fn(&T) -> Job) -> Vec<(Outgoing, &'i [T])> {
        if items.len() >= MIN_BUNDLED_JOBS { self.jobs_in_bulk(items, job) } else { self.jobs_alone(items, job) }
    }

    /// The message that brings `job` when it is `due`: through the retry queue whose gap fits, or immediately. The
    /// message expires at the due time and not after a fixed time, so lateness does not add up.
    ///
    /// A message leaves its queue after those ahead of it, so a job may wait behind jobs that are due later: for
    /// [`RetrySchedule::slack`] at most. If no gap is so near, the job goes through a shorter queue first. A dispatcher
    /// gets the job early, and delays it again for the rest of the time if that is more than
    /// [`RetrySchedule::early_tolerance`]. An attempt is late by the slack at most, or by the shortest gap if that is
    /// longer, whatever is ahead of its job.
    pub fn job_at(&self, job: Job, due: OffsetDateTime, now: OffsetDateTime, schedule: &RetrySchedule) -> Outgoing {
        let (wait, due_now) = (Duration::try_from(due - now).unwrap_or_default(), self.job(job));
        if wait.is_zero() {
            return due_now;
        }
        let gap = schedule.gap_for(wait);
        Outgoing { routing_key: self.retry(gap), expires_in: Some(wait.min(gap)), ..due_now }
    }
}

/// The messages of a queue for the jobs of `items`, `each` in one, with their items.
fn messages<'i, T>(queue: &str, items: &'i [T], each: usize, job: impl Fn(&T) -> Job) -> Vec<(Outgoing, &'i [T])> {
    let message = |own: &'i [T]| {
        let jobs: Vec<Job> = own.iter().map(&job).collect();
        (Outgoing { routing_key: queue.to_owned(), body: Job::many_to_bytes(&jobs), ..Default::default() }, own)
    };
    items.chunks(each).map(message).collect()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

    #[test]
    fn jobs_that_go_together_go_eight_to_a_message() {
        let names = Names::new("webhooks", "events");
        for (count, expected) in [(0, vec![]), (1, vec![1]), (8, vec![8]), (20, vec![8, 8, 4])] {
            let jobs: Vec<_> =
                (0..count).map(|n| Job { delivery: uuid::Uuid::from_u128(n).into(), attempt: 1 }).collect();
            let messages = names.jobs_together(&jobs, |job| *job);
            let read: Vec<_> = messages.iter().map(|(message, _)| Job::parse(&message.body).unwrap()).collect();
            assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            assert_eq!(read.concat(), jobs);
            assert!(messages.iter().zip(read).all(|((_, jobs), read)| *jobs == read));
            assert!(messages.iter().all(|(message, _)| message.routing_key == "webhooks.deliveries"));
            let in_bulk = names.jobs_in_bulk(&jobs, |job| *job);
            assert!(in_bulk.iter().all(|(message, _)| message.routing_key == "webhooks.deliveries.bulk"));
            assert!(
                in_bulk.iter().map(|(message, _)| &message.body).eq(messages.iter().map(|(message, _)| &message.body))
            );
        }
    }

    #[test]
    fn few_jobs_have_a_message_each_and_many_share_them_in_the_bulk_lane() {
        let names = Names::new("webhooks", "events");
        for (count, messages) in [(0, 0), (1, 1), (99, 99), (100, 13), (1_000, 125)] {
            let numbers: Vec<u128> = (0..count).collect();
            let job = |number: &u128| Job { delivery: uuid::Uuid::from_u128(*number).into(), attempt: 1 };
            let made = names.messages_due(&numbers, job);
            assert_eq!(made.len(), messages);
            assert_eq!(made.iter().flat_map(|(_, own)| *own).copied().collect::<Vec<_>>(), numbers);
            for (message, own) in &made {
                assert_eq!(message.routing_key == names.bulk(), count >= 100);
                assert_eq!(Job::parse(&message.body).unwrap(), own.iter().map(job).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_retry_waits_in_the_queue_of_its_gap_and_an_overdue_one_not_at_all() {
        let (names, schedule) = (Names::new("webhooks", "events"), RetrySchedule::default());
        let job = Job { delivery: uuid::Uuid::from_u128(7).into(), attempt: 2 };
        let parked = names.job_at(job, NOW + Duration::from_secs(235), NOW, &schedule);
        assert_eq!(parked.routing_key, "webhooks.retry.240s");
        assert_eq!(parked.expires_in, Some(Duration::from_secs(235)));
        let waiting = names.job_at(job, NOW + Duration::from_secs(12_000), NOW, &schedule);
        assert_eq!(
            (waiting.routing_key.as_str(), waiting.expires_in),
            ("webhooks.retry.10800s", Some(Duration::from_secs(10_800)))
        );
        for due in [NOW, NOW - Duration::from_secs(1)] {
            let overdue = names.job_at(job, due, NOW, &schedule);
            assert_eq!((overdue.routing_key.as_str(), overdue.expires_in), ("webhooks.deliveries", None));
            assert_eq!(overdue.body, job.to_bytes());
        }
    }
}
