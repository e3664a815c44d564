//! Which events wait for which messages.

use std::{borrow::Cow, sync::Arc};

use broker::Outgoing;
use domain::Job;
use service_kit::publishing::Publication;

/// A job, and the place of its event in the list of events.
pub(crate) type EventJob = (usize, Job);

/// The acknowledgements of each event, by its place in the list of events.
pub(crate) struct WaitingEvents<A>(Vec<Vec<A>>);

/// Messages with the events that wait for them.
pub(crate) type Publications<A> = Vec<Publication<Vec<A>, Outgoing>>;

impl<A> WaitingEvents<A> {
    pub(crate) fn new(events: usize) -> Self {
        Self((0..events).map(|_| Vec::new()).collect())
    }

    pub(crate) fn add(&mut self, event: usize, acker: A) {
        self.0[event].push(acker);
    }

    /// The messages with the events that wait for them, and the events that wait for no message.
    pub(crate) fn publications(self, messages: Vec<(Outgoing, &[EventJob])>) -> (Publications<A>, Vec<Vec<A>>) {
        let events: Vec<_> = self.0.into_iter().map(Arc::new).collect();
        let publication = |(content, jobs): (Outgoing, &[EventJob])| {
            let mut own: Vec<_> = jobs.iter().map(|(event, _)| *event).collect();
            own.sort_unstable();
            own.dedup();
            Publication { sources: own.into_iter().map(|event| Arc::clone(&events[event])).collect(), content }
        };
        let publications = messages.into_iter().map(publication).collect();
        (publications, events.into_iter().filter_map(Arc::into_inner).collect())
    }
}

pub(crate) const fn content<S>(publication: &Publication<S, Outgoing>) -> Option<Cow<'_, Outgoing>> {
    Some(Cow::Borrowed(&publication.content))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn job(event: usize, number: u128) -> EventJob {
        (event, Job { delivery: Uuid::from_u128(number).into(), attempt: 1 })
    }

    #[test]
    fn an_event_waits_for_every_message_that_has_a_job_of_it_and_one_without_jobs_for_none() {
        let mut events = WaitingEvents::new(3);
        for (event, acker) in [(0, "a"), (1, "b"), (1, "c"), (2, "d")] {
            events.add(event, acker);
        }
        let jobs = [[job(0, 1), job(0, 2)], [job(1, 3), job(0, 4)]];
        let messages = jobs.iter().map(|jobs| (Outgoing::default(), jobs.as_slice())).collect();
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
