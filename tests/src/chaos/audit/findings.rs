//! What the auditor finds.

use std::collections::BTreeMap;

/// What may be wrong. A storm must produce none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A confirmed event is not in the ledger.
    LostEvent,
    /// A delivery is missing, waits forever, or is cancelled without a deletion.
    LostDelivery,
    /// The ledger says that a delivery succeeded, and has no successful attempt.
    FalseSuccess,
    /// A delivery was dropped before the schedule ended, or after a success.
    EarlyDrop,
    /// A delivery that the webhook should not get.
    Unwanted,
    /// An id that differs from the derived one.
    WrongId,
    /// A body that is not the event's, or differs between attempts.
    WrongBody,
    /// A request whose signature or form does not verify.
    WrongSignature,
    /// An attempt before it was due.
    EarlyRetry,
    /// An attempt after a success, without a resend.
    AfterSuccess,
    /// The attempt counter differs from the attempts.
    WrongCount,
    /// The ledger has an answered attempt that no receiver got.
    NeverArrived,
    /// The health differs from the attempts.
    WrongHealth,
    /// The API shows another health than the ledger.
    WrongHealthShown,
    /// A delivery, a job in flight, a message or an outbox entry is left.
    Left,
    /// A redirect was followed.
    Redirected,
    /// A process ended by itself or did not stop as told, or a change or confirm came too late.
    Misconduct,
}

impl Kind {
    /// Every kind, with its line in the table.
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

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Where it is, with ids.
    pub example: String,
}

/// What is counted without being wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Events confirmed to their publishers.
    pub published: usize,
    /// Those that were published again because a confirm did not come.
    pub published_again: usize,
    /// Deliveries that must be there.
    pub expected: usize,
    /// Deliveries that may be there: the webhook was paused, activated or deleted at about that time.
    pub perhaps: usize,
    /// Deliveries in the ledger, without test deliveries.
    pub stored: usize,
    /// Those that succeeded.
    pub delivered: usize,
    /// Those that were dropped after the whole schedule.
    pub dropped: usize,
    /// Those that were cancelled with their webhook.
    pub cancelled: usize,
    /// Those that were skipped, as their webhook was paused.
    pub skipped: usize,
    /// Test deliveries and resent deliveries.
    pub asked_for: usize,
    /// All requests.
    pub posts: usize,
    /// Attempts in the ledger.
    pub attempts: usize,
    /// Requests without an attempt in the ledger.
    pub unlogged: usize,
    /// Requests after a success, without tests and resends.
    pub repeated: usize,
}

/// The counts and the findings.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The counts.
    pub counts: Counts,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Audit {
    pub(super) fn found(&mut self, kind: Kind, example: String) {
        self.findings.push(Finding { kind, example });
    }

    /// How often each kind was found.
    pub fn by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut counts: BTreeMap<_, _> = Kind::ALL.into_iter().map(|(kind, _)| (kind, 0)).collect();
        for finding in &self.findings {
            *counts.entry(finding.kind).or_default() += 1;
        }
        counts
    }
}
