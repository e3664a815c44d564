//! Decides which acknowledgements to send when messages are done.

use std::collections::VecDeque;

/// Which delivery tags of one channel (1, 2, 3, …) are done: acknowledged or requeued.
///
/// Takes one byte per tag from the lowest undone tag on. A message that nobody acknowledges or requeues keeps its tag
/// undone, until the broker closes the channel after its `consumer_timeout`.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The lowest tag that is not done.
    lowest: u64,
    /// Whether each tag from `lowest` on is done, up to the highest that is. The first never is.
    done: VecDeque<bool>,
}

/// An acknowledgement to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// The tag, which no earlier acknowledgement covers.
    pub(super) tag: u64,
    /// How many messages it acknowledges. If more than one, it covers all up to the tag, and all of these are done.
    pub(super) messages: u64,
}

impl Default for Tracker {
    fn default() -> Self {
        Self { lowest: 1, done: VecDeque::new() }
    }
}

impl Tracker {
    /// Marks tags as done and returns what to send, in this order. One acknowledgement covers the tags before which
    /// everything is done. Each of the others has its own, as it must not wait for a slow message.
    pub(super) fn done(&mut self, tags: &[u64]) -> Vec<Ack> {
        let new = self.mark_all(tags);
        let (bulk, single): (Vec<u64>, Vec<u64>) = new.into_iter().partition(|tag| *tag < self.lowest);
        // The highest tag that is newly done, and not the end of what is done: the broker rejects an acknowledged tag.
        let bulk = bulk.iter().max().map(|tag| Ack { tag: *tag, messages: number_of(&bulk) });
        bulk.into_iter().chain(single.into_iter().map(|tag| Ack { tag, messages: 1 })).collect()
    }

    /// Marks tags as requeued: no acknowledgement names them.
    pub(super) fn requeued(&mut self, tags: &[u64]) {
        self.mark_all(tags);
    }

    /// Whether all tags up to one are done.
    pub(super) const fn are_done(&self, tag: u64) -> bool {
        tag < self.lowest
    }

    /// Marks tags as done. Returns those that were undone.
    fn mark_all(&mut self, tags: &[u64]) -> Vec<u64> {
        let new = tags.iter().copied().filter(|tag| self.mark(*tag)).collect();
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.lowest += 1;
        }
        new
    }

    /// Marks a tag as done. Returns whether it was undone.
    fn mark(&mut self, tag: u64) -> bool {
        let place = tag.checked_sub(self.lowest).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { return false };
        if place >= self.done.len() {
            self.done.resize(place + 1, false);
        }
        !std::mem::replace(&mut self.done[place], true)
    }
}

pub(super) fn number_of(tags: &[u64]) -> u64 {
    u64::try_from(tags.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const fn up_to(tag: u64, messages: u64) -> Ack {
        Ack { tag, messages }
    }

    const fn only(tag: u64) -> Ack {
        Ack { tag, messages: 1 }
    }

    #[test]
    fn what_has_no_undone_message_before_it_goes_in_one_frame() {
        let cases: [(&[&[u64]], &[Ack]); 10] = [
            (&[&[1]], &[only(1)]),
            (&[&[1, 2, 3]], &[up_to(3, 3)]),
            (&[&[3, 1, 2]], &[up_to(3, 3)]),
            (&[&[2]], &[only(2)]),
            (&[&[1, 2, 4, 6]], &[up_to(2, 2), only(4), only(6)]),
            // The second is acknowledged already, so its tag is not named again.
            (&[&[2], &[1]], &[only(1)]),
            (&[&[3], &[1, 2]], &[up_to(2, 2)]),
            (&[&[2, 4], &[3, 1]], &[up_to(3, 2)]),
            (&[&[1, 2], &[3], &[5, 4]], &[up_to(5, 2)]),
            (&[&[2, 1], &[]], &[]),
        ];
        for (calls, expected) in cases {
            let mut tracker = Tracker::default();
            let last = calls.iter().map(|tags| tracker.done(tags)).last().unwrap();
            assert_eq!(last, expected, "{calls:?}");
        }
    }

    #[test]
    fn what_is_done_twice_is_acknowledged_once() {
        let mut tracker = Tracker::default();
        assert_eq!(tracker.done(&[1, 1, 3, 3]), [only(1), only(3)]);
        assert_eq!(tracker.done(&[3, 1, 0]), []);
    }

    #[test]
    fn nothing_is_kept_of_what_has_no_undone_message_before_it() {
        let mut tracker = Tracker::default();
        tracker.done(&(2..=50_000).collect::<Vec<_>>());
        assert_eq!(tracker.done.len(), 50_000);
        assert!(!tracker.are_done(50_000));
        tracker.done(&[1]);
        assert_eq!((tracker.lowest, tracker.done.len()), (50_001, 0));
        assert!(tracker.are_done(50_000) && !tracker.are_done(50_001));
    }

    /// The broker's side of a channel: the tags that are not acknowledged.
    struct Unacknowledged(BTreeSet<u64>);

    impl Unacknowledged {
        /// Returns the tags that an acknowledgement covers. The broker closes a channel that names an unknown tag.
        fn take(&mut self, ack: Ack) -> Result<BTreeSet<u64>, String> {
            if !self.0.contains(&ack.tag) {
                return Err(format!("unknown delivery tag {}", ack.tag));
            }
            if ack.messages == 1 {
                self.0.remove(&ack.tag);
                return Ok(BTreeSet::from([ack.tag]));
            }
            let above = self.0.split_off(&(ack.tag + 1));
            Ok(std::mem::replace(&mut self.0, above))
        }
    }

    /// Tags in random order, those that are never done, those that are requeued, and the sizes of the chunks in which
    /// the others are done.
    fn history() -> impl Strategy<Value = (Vec<u64>, [BTreeSet<u64>; 2], Vec<usize>)> {
        (1_u64..200).prop_flat_map(|most| {
            let some = || prop::collection::btree_set(1..=most, 0..4);
            let sizes = prop::collection::vec(1_usize..20, 200);
            (Just((1..=most).collect::<Vec<_>>()).prop_shuffle(), [some(), some()], sizes)
        })
    }

    proptest! {
        #[test]
        fn all_that_is_done_is_acknowledged_at_once_and_once_and_nothing_else(
            (order, [never, requeued], sizes) in history()
        ) {
            let mut broker = Unacknowledged(order.iter().copied().collect());
            let mut tracker = Tracker::default();
            let mut todo: Vec<u64> = order.into_iter().filter(|tag| !never.contains(tag)).collect();
            let mut undone = broker.0.clone();
            for size in sizes {
                let tags = todo.drain(..size.min(todo.len()));
                let (back, tags): (Vec<u64>, Vec<u64>) = tags.partition(|tag| requeued.contains(tag));
                tracker.requeued(&back);
                broker.0.retain(|tag| !back.contains(tag));
                undone.retain(|tag| !back.contains(tag) && !tags.contains(tag));
                for ack in tracker.done(&tags) {
                    let taken = broker.take(ack).map_err(TestCaseError::fail)?;
                    prop_assert_eq!(taken.len() as u64, ack.messages);
                    prop_assert!(taken.is_disjoint(&undone), "{:?} took {:?}", ack, taken);
                }
                prop_assert_eq!(&broker.0, &undone);
            }
        }
    }
}
