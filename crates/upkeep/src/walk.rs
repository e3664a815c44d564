//! The leader's walks through the ledger: the cursor of each, and what it knows.

use ledger::{LostBefore, WaitingChunk};
use time::OffsetDateTime;
use uuid::Uuid;

/// For how many rounds a judgement of lost jobs holds: the rest of the round in which it is made, and one more. Every
/// delivery has then been looked at since.
const ROUNDS: u8 = 2;

/// A walk through the ledger, round after round.
#[derive(Default)]
pub(crate) struct Walk {
    cursor: Option<Uuid>,
    lost: Option<LostBefore>,
    rounds: u8,
    /// The earliest due time of this round.
    earliest: Option<Seen>,
    /// The earliest due time of the previous round, until this round has come past it.
    earlier: Option<Seen>,
}

/// A due time, and the end of the chunk in which it was seen.
#[derive(Clone, Copy)]
struct Seen {
    due: OffsetDateTime,
    end: Option<Uuid>,
}

impl Walk {
    /// The cursor of the next chunk. A new round begins at `first`.
    pub(crate) fn cursor_or(&self, first: Uuid) -> Uuid {
        self.cursor.unwrap_or(first)
    }

    /// Notes which deliveries have lost their jobs. That holds even while many of the jobs are brought back on the
    /// queue.
    pub(crate) const fn judge(&mut self, lost: LostBefore) {
        (self.lost, self.rounds) = (Some(lost), ROUNDS);
    }

    /// Forgets which jobs are lost: the queue has to be watched anew.
    pub(crate) const fn acquit(&mut self) {
        self.lost = None;
    }

    pub(crate) const fn lost(&self) -> Option<LostBefore> {
        self.lost
    }

    /// Notes what a chunk held. Returns whether the round goes on: it ends with the last chunk, or beyond `last`.
    pub(crate) fn advance(&mut self, chunk: &WaitingChunk, last: Uuid) -> bool {
        let end = chunk.cursor;
        if let Some(due) = chunk.earliest_due
            && self.earliest.is_none_or(|seen| due < seen.due)
        {
            self.earliest = Some(Seen { due, end });
        }
        let is_beyond = |seen: &Seen| end.zip(seen.end).is_some_and(|(end, seen)| end >= seen);
        self.earlier = self.earlier.filter(|seen| !is_beyond(seen));
        self.cursor = end.filter(|cursor| *cursor < last);
        if self.cursor.is_none() {
            self.earlier = self.earliest.take();
            self.rounds = self.rounds.saturating_sub(1);
            self.lost = self.lost.filter(|_| self.rounds > 0);
        }
        self.cursor.is_some()
    }

    /// When the most overdue known delivery was due.
    pub(crate) fn earliest_due(&self) -> Option<OffsetDateTime> {
        self.earliest.into_iter().chain(self.earlier).map(|seen| seen.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const END: Uuid = Uuid::max();

    fn second(second: u64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn chunk(cursor: Option<u128>, earliest_due: Option<u64>) -> WaitingChunk {
        let (cursor, earliest_due) = (cursor.map(Uuid::from_u128), earliest_due.map(second));
        WaitingChunk { found: Vec::new(), earliest_due, cursor }
    }

    #[test]
    fn a_walk_goes_on_where_it_was_and_begins_anew_beyond_its_last_row() {
        let (mut walk, first) = (Walk::default(), Uuid::from_u128(1));
        assert_eq!(walk.cursor_or(first), first);
        assert!(walk.advance(&chunk(Some(10), None), END));
        assert_eq!(walk.cursor_or(first), Uuid::from_u128(10));
        assert!(!walk.advance(&chunk(None, None), END), "that was the last chunk");
        assert_eq!(walk.cursor_or(first), first);
        assert!(walk.advance(&chunk(Some(10), None), Uuid::from_u128(11)));
        assert!(!walk.advance(&chunk(Some(11), None), Uuid::from_u128(11)), "the other walk begins there");
    }

    #[test]
    fn what_was_found_out_holds_until_all_was_looked_at_since() {
        let (mut walk, lost) =
            (Walk::default(), LostBefore { due: second(1), retry_due: second(0), judged_at: second(2) });
        walk.advance(&chunk(Some(10), None), END);
        walk.judge(lost);
        for (cursor, expected) in [(Some(20), Some(lost)), (None, Some(lost)), (Some(10), Some(lost)), (None, None)] {
            walk.advance(&chunk(cursor, None), END);
            assert_eq!(walk.lost(), expected);
        }
        walk.judge(lost);
        walk.acquit();
        assert_eq!(walk.lost(), None);
    }

    #[test]
    fn the_earliest_due_time_is_that_of_this_round_and_as_far_as_that_has_not_come_of_the_one_before() {
        let mut walk = Walk::default();
        for (cursor, due, expected) in [
            (Some(10), Some(50), Some(50)),
            (Some(20), Some(30), Some(30)),
            (None, Some(40), Some(30)),
            // The next round. It is past the delivery due at 50, and not yet at the one due at 30.
            (Some(12), None, Some(30)),
            (Some(22), Some(45), Some(45)),
            (None, Some(40), Some(40)),
            // The delivery due at 40 was in the last chunk.
            (Some(100), None, Some(40)),
            (None, None, None),
        ] {
            walk.advance(&chunk(cursor, due), END);
            assert_eq!(walk.earliest_due(), expected.map(second), "{cursor:?}");
        }
    }
}
