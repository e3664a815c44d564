//! Which events wait for which messages.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use broker::Outgoing;
use domain::Job;
use service_kit::publishing::Publication;

/// Acknowledgements by the millisecond of their events. A delivery's id carries that millisecond and not the event, so
/// events of one millisecond are acknowledged together.
pub(crate) struct WaitingEvents<A>(HashMap<u64, Vec<A>>);

/// Messages with the events that wait for them.
pub(crate) type Publications<A> = Vec<Publication<Vec<A>, Outgoing>>;

impl<A> Default for WaitingEvents<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A> WaitingEvents<A> {
    pub(crate) fn add(&mut self, unix_millis: u64, acker: A) {
        self.0.entry(unix_millis).or_default().push(acker);
    }

    /// The messages with the events that wait for them, and the events that wait for no message.
    pub(crate) fn publications<'j>(
        self,
        messages: impl Iterator<Item = (Outgoing, &'j [Job])>,
    ) -> (Publications<A>, Vec<Vec<A>>) {
        let shared: HashMap<_, _> = self.0.into_iter().map(|(moment, ackers)| (moment, Arc::new(ackers))).collect();
        let publication = |(content, jobs): (Outgoing, &[Job])| {
            let mut moments: Vec<_> = jobs.iter().map(|job| job.delivery.unix_millis()).collect();
            moments.sort_unstable();
            moments.dedup();
            let sources = moments.iter().filter_map(|moment| shared.get(moment)).map(Arc::clone).collect();
            Publication { sources, content }
        };
        let publications = messages.map(publication).collect();
        (publications, shared.into_values().filter_map(Arc::into_inner).collect())
    }
}

pub(crate) const fn content<S>(publication: &Publication<S, Outgoing>) -> Option<Cow<'_, Outgoing>> {
    Some(Cow::Borrowed(&publication.content))
}

#[cfg(test)]
mod tests {
    use domain::DeliveryId;

    use super::*;

    fn job(unix_millis: u64, number: u128) -> Job {
        let id = DeliveryId::bound_at_millis(unix_millis).as_u128() + number;
        Job { delivery: uuid::Uuid::from_u128(id).into(), attempt: 1 }
    }

    #[test]
    fn an_event_waits_for_every_message_that_has_a_job_of_its_millisecond_and_one_without_jobs_for_none() {
        let mut events = WaitingEvents::default();
        for (moment, acker) in [(1, "a"), (2, "b"), (2, "c"), (3, "d")] {
            events.add(moment, acker);
        }
        let jobs = [[job(1, 1), job(1, 2)], [job(1, 3), job(2, 1)]];
        let messages = jobs.iter().map(|jobs| (Outgoing::default(), jobs.as_slice()));
        let (publications, ready) = events.publications(messages);
        assert_eq!(ready, [["d"]]);
        let sources: Vec<Vec<_>> =
            publications.iter().map(|one| one.sources.iter().map(|s| s.to_vec()).collect()).collect();
        assert_eq!(sources, [vec![vec!["a"]], vec![vec!["a"], vec!["b", "c"]]]);
        let mut done =
            publications.into_iter().map(|one| one.sources.into_iter().filter_map(Arc::into_inner).collect::<Vec<_>>());
        assert_eq!(done.next().unwrap(), Vec::<Vec<&str>>::new(), "one more message waits for its confirm");
        assert_eq!(done.next().unwrap(), [vec!["a"], vec!["b", "c"]]);
    }
}
