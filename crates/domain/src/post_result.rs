//! The result of one POST.

use std::time::Duration;

use time::OffsetDateTime;

use crate::OutcomeClass;

/// The result of one POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostResult {
    /// Success, or the kind of failure.
    pub class: OutcomeClass,
    /// The receiver's HTTP status, if it answered.
    pub status: Option<u16>,
    /// The first bytes of the answer's body, at most 1,024: as they came, or in UTF-8 if the answer names another charset.
    pub head: Vec<u8>,
    /// The failure message for the webhook's administrator, at most 300 characters. None on success.
    pub error: Option<String>,
    /// When the attempt began, UTC: in the ledger by the database's clock.
    pub started_at: OffsetDateTime,
    /// The attempt's duration: of a success until its status came, of another answer until its body was read.
    pub elapsed: Duration,
}

impl PostResult {
    /// When the attempt ended, UTC.
    pub fn finished_at(&self) -> OffsetDateTime {
        self.started_at + self.elapsed
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_attempt_ends_when_its_time_has_passed_since_its_beginning() {
        let answer = PostResult {
            class: OutcomeClass::Timeout,
            status: None,
            head: Vec::new(),
            error: None,
            started_at: datetime!(2026-03-01 09:30 UTC),
            elapsed: Duration::from_millis(10_250),
        };
        assert_eq!(answer.finished_at(), datetime!(2026-03-01 09:30:10.25 UTC));
    }
}
