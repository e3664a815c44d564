//! The small configurations, and what is broken on purpose.

use May::{Delete, Disk, Fault, Hold, Lack, Pause, Resend};

use crate::{Broken, Config, May, SMALL_CONFIGS, explore};

/// States of a small configuration, and of one with something broken.
const MAX_SMALL_STATES: usize = 300_000;
const MAX_BROKEN_STATES: usize = 1_000_000;

#[test]
fn every_property_holds_in_the_small_configurations() {
    let mut states = 0;
    for (name, events, may) in SMALL_CONFIGS {
        states += explore(&Config::new(events, may), MAX_SMALL_STATES)
            .unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
    assert!((800_000..1_200_000).contains(&states), "{states} states: look at the budgets");
}

const ACCEPTED: &str = "an accepted event is lost";
const LOST: &str = "lost-job detection has something to do";
const STUCK: &str = "a run rests and a delivery still waits";
const ENDED: &str = "what has ended begins anew";

type Times = &'static [(May, u8)];

/// What is broken, what may happen, by which property that is noticed, and after how many steps.
const NOTICED: [(Broken, Times, &str, usize); 25] = [
    (Broken::EventAcknowledgedBeforeCommit, &[(Fault, 1)], ACCEPTED, 2),
    (Broken::UntriedNotAskedFor, &[(Fault, 1)], LOST, 5),
    (Broken::RecordedWithoutFollowUp, &[], LOST, 9),
    (Broken::StaleAttempted, &[(Fault, 1)], ENDED, 12),
    (Broken::EarlyAttempted, &[(Fault, 1), (Hold, 2)], "an attempt is made before it is due", 18),
    (Broken::RedeliveredTakenForNew, &[(Fault, 1)], LOST, 12),
    (Broken::AgainForgetsDeliveries, &[(Fault, 1), (Lack, 1)], LOST, 16),
    (Broken::DuplicatesEndWithStale, &[(Fault, 2)], LOST, 15),
    (Broken::AcknowledgedBeforeHeld, &[(Fault, 1), (Pause, 1)], STUCK, 7),
    (Broken::SecondHoldForgetsDeliveries, &[(Fault, 2), (Pause, 1)], LOST, 27),
    (Broken::OutboxForgetsDeliveries, &[(Fault, 2), (Pause, 1)], LOST, 24),
    (Broken::HeldAfterActivation, &[(Pause, 1)], STUCK, 12),
    (Broken::ActivationWithoutWake, &[(Pause, 1)], STUCK, 10),
    (Broken::ResendWithoutJob, &[(Resend, 1)], LOST, 9),
    (Broken::RecordOverwritesResend, &[(Resend, 1)], "a delivery is dropped before its schedule has ended", 14),
    (Broken::RecordOverwritesCancellation, &[(Delete, 1)], ENDED, 9),
    (Broken::OutboxGoneBeforePublish, &[(Fault, 1), (Resend, 1)], LOST, 10),
    (Broken::OutboxDeletedByOldLease, &[(Fault, 1), (Hold, 2)], LOST, 19),
    (Broken::DetectionIgnoresOutbox, &[(Resend, 1)], LOST, 9),
    (Broken::DetectionIgnoresHeld, &[(Hold, 1)], LOST, 9),
    (Broken::NoRebuild, &[(Disk, 1)], LOST, 4),
    (Broken::RebuildMissesUntried, &[(Disk, 1)], LOST, 9),
    (Broken::RebuildSkipsOutbox, &[(Disk, 1), (Resend, 1)], LOST, 17),
    (Broken::DeletionWithoutCancellation, &[(Delete, 1), (Pause, 1)], STUCK, 10),
    (Broken::NothingIsDropped, &[], "more attempts are made than the schedule has", 19),
];

/// What no property notices, and why.
const NOT_NOTICED: [(Broken, Times, &str); 3] = [
    (Broken::DuplicatesEndWithAgain, &[(Fault, 1), (Lack, 1)], "the job that is published once more does for them"),
    (Broken::FollowUpOfLostMessage, &[(Fault, 1)], "a second job of a retry costs no more POSTs than a fault may"),
    (Broken::RebuildRepeats, &[(Fault, 1), (Disk, 1)], "nor does one beside what was published since"),
];

#[test]
fn a_property_notices_what_is_broken_on_purpose_or_there_is_a_reason() {
    let noticed = NOTICED.map(|(broken, may, property, steps)| (broken, may, Some((property, steps))));
    let unnoticed = NOT_NOTICED.map(|(broken, may, _)| (broken, may, None));
    let differing = noticed.into_iter().chain(unnoticed).filter_map(|(broken, may, expected)| {
        let violation = explore(&Config { broken: Some(broken), ..Config::new(1, may) }, MAX_BROKEN_STATES).err();
        let found = violation.map(|violation| (violation.property, violation.trace.len()));
        (found != expected).then_some((broken, found, expected))
    });
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "what is broken, what is found, and what was expected: {differing:#?}");
}

#[test]
fn what_was_under_way_when_the_disk_was_lost_is_left_to_lost_job_detection() {
    let config = Config { is_strict: true, ..Config::new(1, &[(Disk, 1)]) };
    let violation = explore(&config, MAX_BROKEN_STATES).unwrap_err();
    assert_eq!((violation.property, violation.trace.len()), (LOST, 14), "{violation}");
}
