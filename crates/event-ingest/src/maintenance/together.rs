//! Messages of many jobs that are due.

use broker::{Names, Outgoing};
use domain::Job;
use ledger::Waiting;

/// From so many jobs on, several go with each message.
const MANY: usize = 100;

/// The messages that make these deliveries be attempted now, each with its own of them.
pub(super) fn due_messages<'w>(names: &Names, mut waiting: &'w [Waiting]) -> Vec<(Outgoing, &'w [Waiting])> {
    let jobs: Vec<Job> = waiting.iter().map(|waiting| waiting.job).collect();
    let messages: Vec<_> = match jobs.len() >= MANY {
        true => names.jobs_together(&jobs).map(|(message, jobs)| (message, jobs.len())).collect(),
        false => jobs.iter().map(|job| (names.job(*job), 1)).collect(),
    };
    let with_own = |(message, jobs)| {
        let own;
        (own, waiting) = waiting.split_at(jobs);
        (message, own)
    };
    messages.into_iter().map(with_own).collect()
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn few_jobs_have_a_message_each_and_many_share_them() {
        let names = Names::new("webhooks", "events");
        let due = OffsetDateTime::UNIX_EPOCH;
        for (count, messages) in [(0, 0), (1, 1), (99, 99), (100, 13), (1_000, 125)] {
            let job = |n| Job { delivery: Uuid::from_u128(n).into(), attempt: 1 };
            let waiting = |n| Waiting { job: job(n), due, webhook: Uuid::nil().into(), is_active: true };
            let all: Vec<_> = (0..count).map(waiting).collect();
            let made = due_messages(&names, &all);
            assert_eq!(made.len(), messages);
            let own: Vec<Waiting> = made.iter().flat_map(|(_, own)| *own).copied().collect();
            assert_eq!(own, all, "each is in one message");
            for (message, own) in &made {
                let jobs: Vec<_> = own.iter().map(|waiting| waiting.job).collect();
                assert_eq!(Job::parse(&message.body).unwrap(), jobs);
            }
        }
    }
}
