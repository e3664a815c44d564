//! Configurations: what may happen in a run, and how often.

use domain::RetrySchedule;

/// The faults and calls that may happen beside the usual steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// A process dies, a connection is lost, a confirm or a commit's answer is lost, a lease ends too soon.
    Fault,
    /// The broker loses its disk.
    Disk,
    /// An event is published once more.
    Copy,
    /// The webhook is paused.
    Pause,
    /// It is activated; once more after each pause.
    Activate,
    /// A delivery is resent.
    Resend,
    /// The webhook is deleted.
    Delete,
    /// A job finds no slot, as its webhook is slow.
    Hold,
    /// A dispatcher has no descriptor for an attempt.
    Lack,
}

/// How often each of these may still happen.
pub(crate) type Budget = [u8; May::Lack as usize + 1];

/// A configuration's name, its events, and what may happen.
type Given = (&'static str, u8, &'static [(May, u8)]);

/// The small configurations.
pub const SMALL_CONFIGS: [Given; 5] = [
    ("two faults and a pause", 1, &[(May::Fault, 2), (May::Pause, 1)]),
    ("a fault and a lost disk", 1, &[(May::Fault, 1), (May::Disk, 1)]),
    ("a fault and a resend", 1, &[(May::Fault, 1), (May::Resend, 1)]),
    ("a fault, a deletion and a pause", 1, &[(May::Fault, 1), (May::Delete, 1), (May::Pause, 1)]),
    ("two events and a fault", 2, &[(May::Fault, 1)]),
];

/// The large ones.
pub const LARGE_CONFIGS: [Given; 6] = [
    ("everything", 1, &EVERYTHING),
    ("two events, a fault and a pause", 2, &[(May::Fault, 1), (May::Pause, 1)]),
    ("two events and a lost disk", 2, &[(May::Fault, 1), (May::Disk, 1)]),
    ("two faults, a lost disk", 1, &[(May::Fault, 2), (May::Disk, 1)]),
    ("two faults and two pauses", 1, &[(May::Fault, 2), (May::Pause, 2)]),
    ("three faults", 1, &[(May::Fault, 3)]),
];

/// An activation follows from a pause.
const EVERYTHING: [(May, u8); 8] = {
    use May::{Copy, Delete, Disk, Fault, Hold, Lack, Pause, Resend};
    [(Fault, 1), (Disk, 1), (Copy, 1), (Pause, 1), (Resend, 1), (Delete, 1), (Hold, 1), (Lack, 1)]
};

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Events, of one webhook: one or two.
    pub events: u8,
    /// The retries' schedule, in minutes.
    pub schedule: RetrySchedule,
    /// Lost-job detection may do nothing for deliveries either that were under way when the broker lost its disk.
    pub is_strict: bool,
    /// What was broken on purpose.
    pub broken: Option<Broken>,
    pub(crate) budget: Budget,
}

impl Config {
    /// A configuration of one retry.
    #[must_use]
    pub fn new(events: u8, may: &[(May, u8)]) -> Self {
        let mut budget = Budget::default();
        may.iter().for_each(|(may, times)| budget[*may as usize] = *times);
        Self { events, schedule: "1m".parse().unwrap_or_default(), is_strict: false, broken: None, budget }
    }

    pub(crate) fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }
}

/// The rules that can be broken on purpose, to see which property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// An event is acknowledged before its rows are committed.
    EventAcknowledgedBeforeCommit,
    /// An event that was redelivered is not asked for untried deliveries.
    UntriedNotAskedFor,
    /// An attempt is recorded, and its retry is not published.
    RecordedWithoutFollowUp,
    /// A stale job is attempted.
    StaleAttempted,
    /// An early job is attempted.
    EarlyAttempted,
    /// A redelivered job is taken for a new one.
    RedeliveredTakenForNew,
    /// The job of a job that was postponed forgets that its message was delivered before.
    AgainForgetsDeliveries,
    /// Duplicates of a job that is not needed end with it, as those of a recorded one.
    DuplicatesEndWithStale,
    /// Duplicates of a job that is published once more end with it.
    DuplicatesEndWithAgain,
    /// A follow-up is published though its message's connection is lost.
    FollowUpOfLostMessage,
    /// A job is acknowledged before it is held.
    AcknowledgedBeforeHeld,
    /// A second hold keeps the first one's number of deliveries by the broker.
    SecondHoldForgetsDeliveries,
    /// The outbox forgets that the message of a held job was delivered before.
    OutboxForgetsDeliveries,
    /// A job is held as its webhook's paused one, though the webhook is active by now.
    HeldAfterActivation,
    /// An activation does not have held jobs published.
    ActivationWithoutWake,
    /// A resend adds no job to the outbox.
    ResendWithoutJob,
    /// A record overwrites a run that was begun during its attempt.
    RecordOverwritesResend,
    /// A record overwrites a cancellation that was made during its attempt.
    RecordOverwritesCancellation,
    /// An entry of the outbox is deleted when it is leased, before its job is published.
    OutboxGoneBeforePublish,
    /// An entry of the outbox is deleted by a relay whose lease is over.
    OutboxDeletedByOldLease,
    /// Lost-job detection does not ask for the outbox.
    DetectionIgnoresOutbox,
    /// Lost-job detection does not ask for held jobs.
    DetectionIgnoresHeld,
    /// A lost disk is followed by no rebuild, and by no lost-job detection.
    NoRebuild,
    /// A rebuild misses untried deliveries, and there is no lost-job detection.
    RebuildMissesUntried,
    /// A rebuild leaves out jobs that are in the outbox.
    RebuildSkipsOutbox,
    /// A rebuild publishes jobs that were published since the sentinel was declared.
    RebuildRepeats,
    /// A deletion does not cancel what waits.
    DeletionWithoutCancellation,
    /// No attempt is ever dropped: the last step is repeated.
    NothingIsDropped,
}
