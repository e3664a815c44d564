//! Configurations: what may happen in a run, and how often.

use domain::RetrySchedule;

/// How often each of these may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Faults: a process dies, a connection is lost, a confirm or a commit's answer is lost, a lease ends too soon.
    pub faults: u8,
    /// The broker loses its disk.
    pub disks: u8,
    /// An event is published once more.
    pub copies: u8,
    /// The webhook is paused.
    pub pauses: u8,
    /// It is activated; once more after each pause.
    pub activations: u8,
    /// A delivery is resent.
    pub resends: u8,
    /// The webhook is deleted.
    pub deletions: u8,
    /// A job finds no slot, as its webhook is slow.
    pub holds: u8,
    /// A dispatcher has no descriptor for an attempt.
    pub lacks: u8,
}

impl Budget {
    /// Nothing but the usual steps.
    pub const NONE: Self = Self {
        faults: 0,
        disks: 0,
        copies: 0,
        pauses: 0,
        activations: 0,
        resends: 0,
        deletions: 0,
        holds: 0,
        lacks: 0,
    };
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// Events, of one webhook: one or two.
    pub events: u8,
    /// The retries' schedule, in minutes.
    pub schedule: RetrySchedule,
    /// What may happen.
    pub budget: Budget,
    /// Lost-job detection may do nothing for deliveries either that were under way when the broker lost its disk.
    pub is_strict: bool,
    /// What was broken on purpose.
    pub broken: Option<Broken>,
}

impl Config {
    /// A configuration of one event, one retry, and this budget.
    #[must_use]
    pub fn new(name: &'static str, budget: Budget) -> Self {
        let schedule = "1m".parse().unwrap_or_default();
        Self { name, events: 1, schedule, budget, is_strict: false, broken: None }
    }

    /// The small configurations.
    #[must_use]
    pub fn small() -> [Self; 5] {
        let two_events = Self::new("two events and a fault", Budget { faults: 1, ..Budget::NONE });
        [
            Self::new("two faults and a pause", Budget { faults: 2, pauses: 1, ..Budget::NONE }),
            Self::new("a fault and a lost disk", Budget { faults: 1, disks: 1, ..Budget::NONE }),
            Self::new("a fault and a resend", Budget { faults: 1, resends: 1, ..Budget::NONE }),
            Self::new("a fault, a deletion and a pause", Budget { faults: 1, deletions: 1, pauses: 1, ..Budget::NONE }),
            Self { events: 2, ..two_events },
        ]
    }

    /// The large ones.
    #[must_use]
    pub fn large() -> [Self; 6] {
        let two_events = |name, budget| Self { events: 2, ..Self::new(name, budget) };
        [
            Self::new(
                "everything",
                Budget {
                    faults: 1,
                    disks: 1,
                    copies: 1,
                    pauses: 1,
                    resends: 1,
                    deletions: 1,
                    holds: 1,
                    lacks: 1,
                    ..Budget::NONE
                },
            ),
            two_events("two events, a fault and a pause", Budget { faults: 1, pauses: 1, ..Budget::NONE }),
            two_events("two events and a lost disk", Budget { faults: 1, disks: 1, ..Budget::NONE }),
            Self::new("two faults, a lost disk", Budget { faults: 2, disks: 1, ..Budget::NONE }),
            Self::new("two faults and two pauses", Budget { faults: 2, pauses: 2, ..Budget::NONE }),
            Self::new("three faults", Budget { faults: 3, ..Budget::NONE }),
        ]
    }

    /// The same with something broken on purpose.
    #[must_use]
    pub fn broken(self, broken: Broken) -> Self {
        Self { broken: Some(broken), ..self }
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
    /// The job of a job that was postponed forgets that its message was handed out before.
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
    /// The outbox forgets that the message of a held job was handed out before.
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
    /// A rebuild publishes jobs that are in the outbox.
    RebuildIgnoresOutbox,
    /// A rebuild publishes jobs that were published since the sentinel was declared.
    RebuildRepeats,
    /// A deletion does not cancel what waits.
    DeletionWithoutCancellation,
    /// No attempt is ever dropped: the last step is repeated.
    NothingIsDropped,
}
