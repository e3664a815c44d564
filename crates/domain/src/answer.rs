//! What came of one POST.

use std::time::Duration;

use time::OffsetDateTime;

use crate::OutcomeClass;

/// The outcome of one POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Success, or the kind of failure.
    pub class: OutcomeClass,
    /// The receiver's HTTP status, if it answered.
    pub status: Option<u16>,
    /// The first bytes of the answer's body, at most 1,024, as they came.
    pub head: Vec<u8>,
    /// The failure message for the webhook's administrator, at most 300 characters. None on success.
    pub error: Option<String>,
    /// When the attempt began, UTC.
    pub started_at: OffsetDateTime,
    /// How long the attempt took, the reading of the body included.
    pub elapsed: Duration,
}

impl Answer {
    /// When the attempt ended, UTC.
    #[must_use]
    pub fn finished_at(&self) -> OffsetDateTime {
        self.started_at + self.elapsed
    }
}
