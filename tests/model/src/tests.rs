//! The small configurations, and what is broken on purpose.

use crate::{Broken, Budget, Config, explore};

/// States of a small configuration, and of one with something broken.
const SMALL: usize = 300_000;
const MOST: usize = 1_000_000;
const NONE: Budget = Budget::NONE;
const FAULT: Budget = Budget { faults: 1, ..NONE };
const PAUSE: Budget = Budget { pauses: 1, ..NONE };
const RESEND: Budget = Budget { resends: 1, ..NONE };
const DELETION: Budget = Budget { deletions: 1, ..NONE };
const DISK: Budget = Budget { disks: 1, ..NONE };

#[test]
fn every_property_holds_in_the_small_configurations() {
    let mut states = 0;
    for config in Config::small() {
        match explore(&config, SMALL) {
            Ok(explored) => states += explored.states,
            Err(violation) => panic!("{}: {violation}", config.name),
        }
    }
    assert!((800_000..1_200_000).contains(&states), "{states} states: look at the budgets");
}

const ACCEPTED: &str = "an accepted event is lost";
const LOST: &str = "lost-job detection has something to do";
const STUCK: &str = "a run rests and a delivery still waits";
const ENDED: &str = "what has ended begins anew";

/// What is broken, where that is noticed, by which property, and after how many steps.
const NOTICED: [(Broken, Budget, &str, usize); 24] = [
    (Broken::EventAcknowledgedBeforeCommit, FAULT, ACCEPTED, 2),
    (Broken::UntriedNotAskedFor, FAULT, LOST, 5),
    (Broken::RecordedWithoutFollowUp, NONE, LOST, 9),
    (Broken::StaleAttempted, FAULT, ENDED, 12),
    (Broken::EarlyAttempted, Budget { holds: 2, ..FAULT }, "an attempt is made before it is due", 18),
    (Broken::RedeliveredTakenForNew, FAULT, LOST, 12),
    (Broken::AgainForgetsDeliveries, Budget { lacks: 1, ..FAULT }, LOST, 16),
    (Broken::DuplicatesEndWithStale, Budget { faults: 2, ..NONE }, LOST, 15),
    (Broken::AcknowledgedBeforeHeld, Budget { faults: 1, ..PAUSE }, STUCK, 7),
    (Broken::SecondHoldForgetsDeliveries, Budget { faults: 2, ..PAUSE }, LOST, 27),
    (Broken::OutboxForgetsDeliveries, Budget { faults: 2, ..PAUSE }, LOST, 24),
    (Broken::HeldAfterActivation, PAUSE, STUCK, 11),
    (Broken::ActivationWithoutWake, PAUSE, STUCK, 10),
    (Broken::ResendWithoutJob, RESEND, LOST, 9),
    (Broken::RecordOverwritesResend, RESEND, "a delivery is dropped before its schedule has ended", 14),
    (Broken::RecordOverwritesCancellation, DELETION, ENDED, 9),
    (Broken::OutboxGoneBeforePublish, Budget { faults: 1, ..RESEND }, LOST, 10),
    (Broken::OutboxDeletedByOldLease, Budget { holds: 2, ..FAULT }, LOST, 19),
    (Broken::DetectionIgnoresOutbox, RESEND, LOST, 9),
    (Broken::DetectionIgnoresHeld, Budget { holds: 1, ..NONE }, LOST, 9),
    (Broken::NoRebuild, DISK, LOST, 4),
    (Broken::RebuildMissesUntried, DISK, LOST, 8),
    (Broken::DeletionWithoutCancellation, Budget { pauses: 1, ..DELETION }, STUCK, 10),
    (Broken::NothingIsDropped, NONE, "more attempts are made than the schedule has", 19),
];

/// What no property notices, and why.
const NOT_NOTICED: [(Broken, Budget, &str); 4] = [
    (Broken::DuplicatesEndWithAgain, Budget { lacks: 1, ..FAULT }, "the job that is published once more does for them"),
    (
        Broken::FollowUpOfLostMessage,
        FAULT,
        "a second job of a retry costs no more POSTs than the fault may cost anyway",
    ),
    (Broken::RebuildIgnoresOutbox, Budget { resends: 1, ..DISK }, "nor does a second job beside the outbox"),
    (Broken::RebuildRepeats, Budget { faults: 1, ..DISK }, "nor does one beside what was published since"),
];

fn found(broken: Broken, budget: Budget) -> Option<(&'static str, usize)> {
    let violation = explore(&Config::new("", budget).broken(broken), MOST).err()?;
    Some((violation.property, violation.trace.len()))
}

#[test]
fn a_property_notices_what_is_broken_on_purpose_or_there_is_a_reason() {
    let expected = NOTICED.map(|(broken, budget, property, steps)| (broken, budget, Some((property, steps))));
    let reasons = NOT_NOTICED.map(|(broken, budget, _)| (broken, budget, None));
    let faults: Vec<_> = expected
        .into_iter()
        .chain(reasons)
        .map(|(broken, budget, expected)| (broken, found(broken, budget), expected))
        .filter(|(_, found, expected)| found != expected)
        .collect();
    assert!(faults.is_empty(), "what is broken, what is found, and what was expected: {faults:#?}");
}

#[test]
fn what_was_under_way_when_the_disk_was_lost_is_left_to_lost_job_detection() {
    let config = Config { is_strict: true, ..Config::new("", DISK) };
    let violation = explore(&config, MOST).unwrap_err();
    assert_eq!((violation.property, violation.trace.len()), (LOST, 13), "{violation}");
}
