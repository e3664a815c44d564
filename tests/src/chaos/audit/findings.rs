//! What the auditor says.

use std::collections::BTreeMap;

/// What may be wrong. Every one of these is a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An event was confirmed to its publisher and is not in the ledger.
    LostEvent,
    /// A delivery is missing, or waits for ever.
    LostDelivery,
    /// The ledger says that it succeeded, and no receiver had said so.
    FalseSuccess,
    /// It was given up before the schedule ended, or although an attempt had succeeded.
    EarlyDrop,
    /// A delivery that nobody should get.
    Unwanted,
    /// An id that is not the one derived from webhook and event.
    WrongId,
    /// A body that is not the event's, or differs among the attempts.
    WrongBody,
    /// A request whose signature or form does not verify.
    WrongSignature,
    /// An attempt before it was due.
    EarlyRetry,
    /// An attempt after a success that nobody asked for.
    AfterSuccess,
    /// The counter of attempts differs from the attempts.
    WrongCount,
    /// An attempt that reached the receiver by the log, and not by the receiver.
    NeverArrived,
    /// The health differs from the attempts.
    WrongHealth,
    /// The API shows another health than the ledger.
    WrongHealthShown,
    /// A message or an entry of the outbox is left.
    Left,
    /// A redirect was followed.
    Redirected,
    /// A process ended by itself, or did not when it was told to.
    Misconduct,
}

impl Kind {
    /// Every one, with its line in the table.
    pub const ALL: [(Self, &'static str); 17] = [
        (Self::LostEvent, "events lost"),
        (Self::LostDelivery, "deliveries lost"),
        (Self::FalseSuccess, "successes that no receiver knows"),
        (Self::EarlyDrop, "deliveries given up too early"),
        (Self::Unwanted, "deliveries that nobody should get"),
        (Self::WrongId, "ids that differ"),
        (Self::WrongBody, "bodies that differ"),
        (Self::WrongSignature, "wrong signatures"),
        (Self::EarlyRetry, "retries earlier than due"),
        (Self::AfterSuccess, "attempts recorded after a success"),
        (Self::WrongCount, "counters that differ from the attempts"),
        (Self::NeverArrived, "attempts in the log that never arrived"),
        (Self::WrongHealth, "health that differs from the attempts"),
        (Self::WrongHealthShown, "health that the API shows wrongly"),
        (Self::Left, "messages left behind"),
        (Self::Redirected, "redirects followed"),
        (Self::Misconduct, "processes that ended by themselves"),
    ];
}

/// One violation.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which.
    pub kind: Kind,
    /// Where, with ids.
    pub example: String,
}

/// What is counted without being wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Events confirmed to their publishers.
    pub published: usize,
    /// Of these, published more than once, as a confirm did not come.
    pub published_again: usize,
    /// Deliveries that must be there.
    pub expected: usize,
    /// Deliveries that may be there: the webhook was paused, activated or deleted at about that time.
    pub perhaps: usize,
    /// Deliveries that are there, without tests.
    pub stored: usize,
    /// Of these, succeeded.
    pub delivered: usize,
    /// Given up after the whole schedule.
    pub dropped: usize,
    /// Of deleted webhooks.
    pub cancelled: usize,
    /// Tests and resends that an administrator asked for.
    pub asked_for: usize,
    /// Requests in all.
    pub posts: usize,
    /// Attempts in the log.
    pub attempts: usize,
    /// Requests that are not in the log.
    pub unlogged: usize,
    /// Requests after the receiver had said 2xx to the same id, other than by a resend.
    pub repeated: usize,
    /// Requests of tests that were taken back.
    pub taken_back: usize,
}

/// Counts and violations.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The counts.
    pub counts: Counts,
    /// The violations.
    pub findings: Vec<Finding>,
}

impl Audit {
    pub(super) fn found(&mut self, kind: Kind, example: String) {
        self.findings.push(Finding { kind, example });
    }

    /// How often each kind was found.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut counts: BTreeMap<_, _> = Kind::ALL.into_iter().map(|(kind, _)| (kind, 0)).collect();
        for finding in &self.findings {
            *counts.entry(finding.kind).or_default() += 1;
        }
        counts
    }
}
