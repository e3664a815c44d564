//! The end of a job in a dispatcher, and what its message leaves behind.

use time::OffsetDateTime;

/// The end of a job: what is published before its message is acknowledged. `R` is the reason why a job is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<R> {
    /// Nothing is left to do. Its duplicates are done with it.
    Done,
    /// The message is not needed. A duplicate is judged by itself: it may have been published after the ledger was
    /// read.
    NotNeeded,
    /// The job of the next attempt is published, due then. Its duplicates are done with it.
    Retry(OffsetDateTime),
    /// The job is published once more, due then, with the number of its earlier deliveries by the broker, which would count
    /// from 0. The next dispatcher needs the number: another one may be making this attempt, and rely on the message for
    /// the retry. A duplicate is judged by itself: it may be the copy just published.
    Again(OffsetDateTime, u32),
    /// It is parked for an operator, with its duplicates.
    Dead(R),
}

impl<R> End<R> {
    /// The number of duplicates that are done with the job, at most.
    pub const fn duplicates(&self) -> usize {
        match self {
            Self::NotNeeded | Self::Again(..) => 0,
            Self::Done | Self::Retry(_) | Self::Dead(_) => usize::MAX,
        }
    }

    /// The same job's end as a follow-up, if a message is to be published.
    pub fn left(self) -> Option<Self> {
        (!matches!(self, Self::Done | Self::NotNeeded)).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_end_with_their_job_unless_they_may_be_newer_than_what_was_read() {
        let now = OffsetDateTime::UNIX_EPOCH;
        for (end, duplicates, is_left) in [
            (End::Done, usize::MAX, false),
            (End::NotNeeded, 0, false),
            (End::Retry(now), usize::MAX, true),
            (End::Again(now, 1), 0, true),
            (End::Dead(()), usize::MAX, true),
        ] {
            assert_eq!((end.duplicates(), end.left().is_some()), (duplicates, is_left), "{end:?}");
        }
    }
}
