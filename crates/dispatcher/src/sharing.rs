//! Which follow-ups share a message, and what it says. While retries are many, up to eight do: the broker writes each
//! message to its log three times until the retry is taken (published, due, acknowledged). A retry whose last attempt was
//! slow has a message of its own: what the others of a message leave behind waits for the slowest.

use std::{sync::Arc, time::Duration};

use broker::{JOBS_PER_MESSAGE, Names, Outgoing};
use domain::RetrySchedule;
use service_kit::publishing::Publication;
use time::OffsetDateTime;

use crate::{
    end::Retry,
    shared_ack::{FollowUp, Origin},
};

/// The retries of a message are due within this time of the first.
const APART: Duration = Duration::from_millis(100);

/// What a message is made of: one follow-up, or several retries. Each belongs to the source in the same place.
pub(crate) struct Content {
    pub(crate) follow_ups: Vec<FollowUp>,
    pub(crate) origin: Origin,
}

/// Puts each follow-up into a publication, or several retries into one.
pub(crate) fn publications<S>(
    follow_ups: Vec<(Arc<S>, Origin, FollowUp)>,
    retries_share: bool,
) -> Vec<Publication<S, Content>> {
    let (mut sharing, alone): (Vec<_>, Vec<_>) =
        follow_ups.into_iter().partition(|(_, _, follow_up)| retries_share && shared_due(follow_up).is_some());
    sharing.sort_by_key(|(_, origin, follow_up)| (*origin, shared_due(follow_up)));
    let mut publications: Vec<Publication<S, Content>> = Vec::new();
    for (source, origin, follow_up) in sharing {
        match publications.last_mut() {
            Some(last) if last.content.takes(origin, &follow_up) => {
                last.sources.push(source);
                last.content.follow_ups.push(follow_up);
            }
            _ => publications.push(publication(source, origin, follow_up)),
        }
    }
    publications.extend(alone.into_iter().map(|(source, origin, follow_up)| publication(source, origin, follow_up)));
    publications
}

/// When a follow-up is due, if it is a retry that may share a message.
const fn shared_due(follow_up: &FollowUp) -> Option<OffsetDateTime> {
    match follow_up {
        FollowUp::Retry(_, Retry { due, may_share: true }) => Some(*due),
        _ => None,
    }
}

fn publication<S>(source: Arc<S>, origin: Origin, follow_up: FollowUp) -> Publication<S, Content> {
    Publication { sources: vec![source], content: Content { follow_ups: vec![follow_up], origin } }
}

impl Content {
    /// Whether there is room for a retry that is due no earlier than these.
    fn takes(&self, origin: Origin, retry: &FollowUp) -> bool {
        let first = self.follow_ups.first().and_then(shared_due);
        let is_near = first.zip(shared_due(retry)).is_some_and(|(first, due)| due - first <= APART);
        is_near && self.origin == origin && self.follow_ups.len() < JOBS_PER_MESSAGE
    }

    /// The message of those follow-ups whose places are wanted, if there are any. Retries are due with the last of them,
    /// but one that is overdue takes the others along.
    pub(crate) fn message(
        &self,
        is_wanted: impl Fn(usize) -> bool,
        names: &Names,
        schedule: &RetrySchedule,
        now: OffsetDateTime,
    ) -> Option<Outgoing> {
        let (mut retries, mut dues, mut other) = (Vec::new(), Vec::new(), None);
        let follow_ups = self.follow_ups.iter().enumerate();
        for (_, follow_up) in follow_ups.filter(|(place, _)| is_wanted(*place)) {
            match follow_up {
                FollowUp::Retry(job, retry) => {
                    retries.push(*job);
                    dues.push(retry.due);
                }
                FollowUp::Republish(job, due, handed_out_before) => {
                    other = Some(names.job_at(*job, *due, now, schedule).carrying(*handed_out_before));
                }
                FollowUp::Message(message) => other = Some(message.clone()),
            }
        }
        let message = match (dues.iter().min(), dues.iter().max()) {
            (Some(first), Some(last)) => {
                names.jobs_at(&retries, if *first <= now { now } else { *last }, now, schedule)
            }
            _ => other?,
        };
        Some(match self.origin {
            Origin::Bulk => message.of_bulk(),
            Origin::Other => message,
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::Job;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn job(number: u128) -> Job {
        Job { delivery: Uuid::from_u128(number).into(), attempt: 2 }
    }

    fn retry(number: u128, after: u64) -> FollowUp {
        FollowUp::Retry(job(number), Retry { due: NOW + Duration::from_millis(after), may_share: true })
    }

    /// The sources of each publication.
    fn shared(follow_ups: Vec<(Origin, FollowUp)>, retries_share: bool) -> Vec<Vec<usize>> {
        let sources = follow_ups.into_iter().enumerate();
        let follow_ups = sources.map(|(place, (origin, one))| (Arc::new(place), origin, one)).collect();
        let publications = publications(follow_ups, retries_share);
        let sources = publications.into_iter().map(|one| {
            assert_eq!(one.sources.len(), one.content.follow_ups.len());
            one.sources.into_iter().map(|source| *source).collect()
        });
        sources.collect()
    }

    #[test]
    fn at_most_eight_retries_of_one_lane_that_are_due_together_share_a_message() {
        let of = |origin, dues: &[u64]| -> Vec<_> { dues.iter().map(|due| (origin, retry(1, *due))).collect() };
        assert_eq!(shared(of(Origin::Other, &[0; 20]), true).iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 4]);
        assert_eq!(shared(of(Origin::Other, &[0; 20]), false).len(), 20, "while they are few");
        assert_eq!(shared(of(Origin::Other, &[150, 0, 100, 101, 50]), true), [vec![1, 4, 2], vec![3, 0]]);
        let mut lanes = of(Origin::Other, &[0, 0]);
        lanes.extend(of(Origin::Bulk, &[0, 0]));
        assert_eq!(shared(lanes, true).len(), 2);
    }

    #[test]
    fn nothing_else_shares_a_message() {
        let job = Job { delivery: Uuid::from_u128(1).into(), attempt: 1 };
        let others = vec![
            (Origin::Other, retry(2, 0)),
            (Origin::Other, FollowUp::Message(Outgoing::default())),
            (Origin::Other, FollowUp::Republish(job, NOW, 1)),
            (Origin::Other, retry(3, 0)),
            (Origin::Other, FollowUp::Retry(job, Retry { due: NOW, may_share: false })),
        ];
        assert_eq!(shared(others, true), [vec![0, 3], vec![1], vec![2], vec![4]]);
    }

    /// The body of the message that three retries leave, and how long it waits, in milliseconds.
    fn message(dues: [u64; 3], is_wanted: impl Fn(usize) -> bool, after: u64) -> Option<(Vec<u8>, u128)> {
        let follow_ups = (1..).zip(dues).map(|(number, due)| retry(number, due)).collect();
        let content = Content { follow_ups, origin: Origin::Other };
        let (names, schedule) = (Names::new("webhooks", "events"), "60s,5m".parse().unwrap());
        let message = content.message(is_wanted, &names, &schedule, NOW + Duration::from_millis(after))?;
        Some((message.body, message.expires_in.unwrap_or_default().as_millis()))
    }

    fn body(numbers: &[u128]) -> Vec<u8> {
        Job::many_to_bytes(&numbers.iter().copied().map(job).collect::<Vec<_>>())
    }

    #[test]
    fn retries_come_with_the_last_of_them_unless_one_is_overdue() {
        let dues = [40_000, 40_050, 40_100];
        assert_eq!(message(dues, |_| true, 0), Some((body(&[1, 2, 3]), 40_100)));
        assert_eq!(message(dues, |_| true, 39_999), Some((body(&[1, 2, 3]), 101)));
        assert_eq!(message(dues, |_| true, 40_000), Some((body(&[1, 2, 3]), 0)));
    }

    #[test]
    fn a_retry_whose_source_is_lost_is_left_out_with_its_due_time() {
        let dues = [40_000, 40_050, 40_100];
        assert_eq!(message(dues, |place| place != 2, 0), Some((body(&[1, 2]), 40_050)));
        assert_eq!(message(dues, |place| place != 0, 40_010), Some((body(&[2, 3]), 90)));
        assert_eq!(message(dues, |_| false, 0), None);
    }
}
