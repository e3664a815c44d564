//! The leader's memory of its searches for overdue deliveries.

use std::time::{Duration, Instant};

use ledger::{StreamPosition, WaitingChunk};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::working_time::MAX_GRACES;

/// Jobs that are enqueued again in each [`MINUTE`], at most: what is taken for lost, and is not, does little harm.
const MAX_COPIES_PER_MINUTE: u32 = 1_000;
const MINUTE: Duration = Duration::from_secs(60);

/// The cursors of the searches, and the most overdue deliveries that they know.
#[derive(Default)]
pub(crate) struct Search {
    due: Option<StreamPosition>,
    /// The begin of the next round by due time, if it does not scan the whole index.
    due_begin: Option<StreamPosition>,
    /// The latest begin that the round by due time allows for the next one.
    due_latest_begin: Option<StreamPosition>,
    /// The beginning of the latest round that scanned the whole index.
    whole_began: Option<OffsetDateTime>,
    new: Option<StreamPosition>,
    untried: Option<StreamPosition>,
    /// The first delivery with a due time that this round found, and the one that is shown.
    found_due: Option<StreamPosition>,
    oldest_due: Option<StreamPosition>,
    pub(crate) oldest_untried: Option<StreamPosition>,
    /// Jobs that may be enqueued again until this moment.
    pub(crate) copies: u32,
    copies_until: Option<Instant>,
}

#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// By due time.
    Due,
    /// Untried ones, once, a grace after they may be lost: events may be stored a little later than they fired.
    New,
    /// All untried ones: from the cursor on (`untried.rs`).
    Untried,
}

impl Search {
    /// When the most overdue delivery was due that has its job on a queue, or nowhere.
    pub(crate) fn oldest_due(&self) -> Option<OffsetDateTime> {
        self.oldest_due.into_iter().chain(self.oldest_untried).map(|oldest| oldest.due).min()
    }

    pub(crate) const fn cursor(&mut self, scope: Scope) -> &mut Option<StreamPosition> {
        match scope {
            Scope::Due => &mut self.due,
            Scope::New => &mut self.new,
            Scope::Untried => &mut self.untried,
        }
    }

    /// Returns the place after which a search continues, or its next round begins: with the ids after `first`. `now`: the
    /// database's time.
    ///
    /// A round by due time begins with the first delivery that the round before has found, or a grace ago if that is
    /// earlier. Before it, the index holds dead entries, which cost time in each pass until the server has removed them.
    /// A delivery that gets an earlier due time is found by the next round through the whole index, after six graces.
    pub(crate) fn place(&mut self, scope: Scope, first: Uuid, now: OffsetDateTime, grace: Duration) -> StreamPosition {
        let whole = StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id: first };
        if let Some(place) = *self.cursor(scope) {
            return place;
        }
        if !matches!(scope, Scope::Due) {
            return whole;
        }
        self.due_latest_begin = Some(StreamPosition { due: now - grace, id: first });
        let is_time = self.whole_began.is_none_or(|began| now - began >= grace.saturating_mul(MAX_GRACES));
        match self.due_begin.filter(|_| !is_time) {
            Some(begin) => begin,
            None => {
                self.whole_began = Some(now);
                whole
            }
        }
    }

    /// Notes that untried deliveries got due times, `earliest` the earliest of them: the next round by due time begins no
    /// later.
    pub(crate) fn begin_before(&mut self, earliest: OffsetDateTime) {
        let earliest = StreamPosition { due: earliest, id: Uuid::nil() };
        self.due_begin = self.due_begin.map(|begin| begin.min(earliest));
    }

    /// Notes a chunk of a search that ends before an id. Its deliveries come in the order in which they are due, or of
    /// their ids. Returns false at the end: the next round begins at the beginning, or, for new ones, there.
    pub(crate) fn advance(&mut self, scope: Scope, chunk: &WaitingChunk, end: Uuid) -> bool {
        let oldest = chunk.oldest;
        if let Scope::Due = scope {
            if self.due.is_none() {
                self.due_begin = chunk.first.map(StreamPosition::before).into_iter().chain(self.due_latest_begin).min();
            }
            self.found_due = self.found_due.or(oldest);
            self.oldest_due = self.found_due.or(self.oldest_due);
            if chunk.last.is_none() {
                self.oldest_due = self.found_due.take();
            }
        } else if let Some(oldest) = oldest
            && self.oldest_untried.is_none_or(|known| oldest.due < known.due)
        {
            self.oldest_untried = Some(oldest);
        }
        let last = chunk.last.filter(|last| last.id < end);
        let stays = matches!(scope, Scope::New).then_some(StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id: end });
        *self.cursor(scope) = last.or(stays);
        last.is_some()
    }

    /// Returns how many jobs may still be enqueued again in this minute.
    pub(crate) fn copies(&mut self, now: Instant) -> u32 {
        if self.copies_until.is_none_or(|until| now >= until) {
            (self.copies, self.copies_until) = (MAX_COPIES_PER_MINUTE, Some(now + MINUTE));
        }
        self.copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORDER: Uuid = Uuid::from_u128(1_000);

    fn place(second: u64, id: u128) -> StreamPosition {
        StreamPosition { due: OffsetDateTime::UNIX_EPOCH + Duration::from_secs(second), id: Uuid::from_u128(id) }
    }

    fn chunk(oldest: Option<StreamPosition>, last: Option<StreamPosition>) -> WaitingChunk {
        WaitingChunk { found: Vec::new(), first: None, oldest, last }
    }

    #[test]
    fn a_round_by_due_time_begins_with_the_first_delivery_of_the_one_before_and_every_six_graces_at_the_epoch() {
        let (mut search, grace, epoch) = (Search::default(), Duration::from_secs(100), place(0, 0));
        for (second, first, begin) in [
            (1_000, Some(place(300, 7)), epoch),
            // Held jobs wait there: nothing that waits is left out.
            (1_005, Some(place(300, 7)), place(300, 6)),
            (1_010, Some(place(990, 9)), place(300, 6)),
            // No later than a grace ago: a transaction that was long under way makes a delivery due at its beginning.
            (1_015, None, place(910, 0)),
            (1_599, Some(place(400, 1)), place(915, 0)),
            (1_600, Some(place(1_590, 1)), epoch),
            (1_605, None, place(1_500, 0)),
        ] {
            let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(second);
            assert_eq!(search.place(Scope::Due, Uuid::nil(), now, grace), begin, "{second}");
            let chunk = WaitingChunk { first, last: Some(place(second, 3)), ..WaitingChunk::default() };
            assert!(search.advance(Scope::Due, &chunk, Uuid::max()));
            assert_eq!(search.place(Scope::Due, Uuid::nil(), now, grace), place(second, 3), "the round goes on");
            let last = WaitingChunk { first: Some(place(second, 4)), ..WaitingChunk::default() };
            assert!(!search.advance(Scope::Due, &last, Uuid::max()));
        }
    }

    #[test]
    fn the_first_delivery_of_a_round_is_the_most_overdue_one_until_the_next_round_finds_another() {
        let mut search = Search::default();
        let second = |search: &Search| search.oldest_due().map(OffsetDateTime::unix_timestamp);
        for (oldest, last, expected) in [
            (None, Some(20), None),
            (Some(30), Some(40), Some(30)),
            (Some(41), None, Some(30)),
            // The next round. The first chunk has held deliveries only, and the delivery of 30 may still wait.
            (None, Some(20), Some(30)),
            (Some(35), Some(40), Some(35)),
            (None, None, Some(35)),
            (None, Some(20), Some(35)),
            (None, None, None),
        ] {
            let chunk = chunk(oldest.map(|second| place(second, 1)), last.map(|second| place(second, 2)));
            search.advance(Scope::Due, &chunk, Uuid::max());
            assert_eq!(second(&search), expected, "{oldest:?} {last:?}");
            assert_eq!(*search.cursor(Scope::Due), chunk.last);
        }
    }

    /// The row that begins the next round may have been found a moment before others got earlier due times.
    #[test]
    fn the_next_round_by_due_time_finds_untried_deliveries_that_got_due_times_before_its_begin() {
        let (mut search, grace) = (Search::default(), Duration::from_secs(100));
        let round = |search: &mut Search, second: u64| {
            let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(second);
            let begin = search.place(Scope::Due, Uuid::nil(), now, grace);
            let chunk = WaitingChunk { first: Some(place(900, 9)), ..WaitingChunk::default() };
            assert!(!search.advance(Scope::Due, &chunk, Uuid::max()));
            begin
        };
        round(&mut search, 1_000);
        assert_eq!(round(&mut search, 1_005), place(900, 0));
        search.begin_before(place(950, 0).due);
        assert_eq!(round(&mut search, 1_010), place(900, 8));
        search.begin_before(place(20, 0).due);
        assert_eq!(round(&mut search, 1_015), place(20, 0));
        assert_eq!(round(&mut search, 1_020), place(900, 8), "once is enough");
    }

    #[test]
    fn the_most_overdue_untried_delivery_is_the_one_that_was_created_first() {
        let mut search = Search::default();
        for (oldest, known) in [(place(50, 7), 50), (place(40, 3), 40), (place(45, 8), 40)] {
            search.advance(Scope::Untried, &chunk(Some(oldest), Some(place(60, 2_000))), Uuid::max());
            assert_eq!(search.oldest_untried.map(|oldest| oldest.due), Some(place(known, 0).due));
        }
        assert!(search.untried.is_some());
    }

    #[test]
    fn new_ids_are_searched_once() {
        let mut search = Search::default();
        assert!(search.advance(Scope::New, &chunk(None, Some(place(0, 999))), BORDER));
        assert_eq!(search.new, Some(place(0, 999)));
        for last in [Some(place(0, 2_000)), None] {
            assert!(!search.advance(Scope::New, &chunk(None, last), BORDER), "the end");
            assert_eq!(search.new, Some(place(0, 1_000)), "the next search begins there");
        }
    }

    #[test]
    fn so_many_jobs_are_enqueued_again_in_a_minute_and_no_more() {
        let (mut search, now) = (Search::default(), Instant::now());
        assert_eq!(search.copies(now), MAX_COPIES_PER_MINUTE);
        search.copies -= 990;
        assert_eq!(search.copies(now + MINUTE / 2), 10);
        search.copies -= 10;
        assert_eq!(search.copies(now + MINUTE - Duration::from_millis(1)), 0);
        assert_eq!(search.copies(now + MINUTE), MAX_COPIES_PER_MINUTE);
    }
}
