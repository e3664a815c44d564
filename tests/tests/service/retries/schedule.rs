//! When retries come, and when they end.

use std::{collections::BTreeSet, time::Duration};

use end_to_end::{
    receiver::{Received, Receiver, Reply, behaviour, fails_then_succeeds, verify},
    system::{Options, Subscriber, System, TestSystem},
};
use time::OffsetDateTime;

use crate::retries::{attempts, ended, first_failed_at, no_message_is_left, publish};

/// The maximum lateness of an attempt on a busy machine: less than the delays that these tests look for.
const LATE: Duration = Duration::from_secs(6);
/// The maximum time before its due time: a dispatcher attempts a job that is early by up to 250 ms. All share one clock.
const EARLY: Duration = Duration::from_millis(300);

fn assert_on_time(what: &str, at: OffsetDateTime, due: OffsetDateTime) {
    assert!(at >= due - EARLY && at <= due + LATE, "{what} came {} s after it was due", (at - due).as_seconds_f64());
}

/// Asserts that the receiver's and the ledger's times of all attempts fit the steps from the first failure.
async fn assert_on_schedule(system: &System, webhook: &str, received: &[Received]) {
    let first_failed_at = first_failed_at(system).await;
    let steps = system.settings().retry.schedule.steps().to_vec();
    let attempts = attempts(system, webhook).await;
    assert_eq!((attempts.len(), received.len()), (steps.len() + 1, steps.len() + 1));
    let ended = attempts[0].started_at + attempts[0].took;
    assert!((ended - first_failed_at).abs() < Duration::from_millis(1), "{ended} is not {first_failed_at}");
    for (index, step) in steps.into_iter().enumerate() {
        let (number, due) = (index + 2, first_failed_at + step);
        assert_on_time(&format!("attempt {number}"), attempts[index + 1].started_at, due);
        assert_on_time(&format!("request {number}"), received[index + 1].at, due);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_take_long_do_not_delay_the_next_ones() {
    let options = Options { schedule: "3s,6s,9s,12s", ..Options::default() };
    let system = TestSystem::running(options).await;
    let slow = Duration::from_millis(2500);
    let Subscriber { tenant, receiver, webhook, .. } =
        system.subscriber(behaviour(move |_, _| Reply::status(500).after(slow))).await;
    publish(&system, tenant).await;
    ended(&system, &webhook, "dropped", 5).await;
    let received = receiver.received();
    // The schedule begins when the first attempt fails, not when it begins. A drift would add up to 10 s.
    let failed = first_failed_at(&system).await;
    assert_on_time("the first failure", failed, received[0].at + slow);
    assert_on_schedule(&system, &webhook, &received).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_job_goes_round_its_queue_several_times_is_not_early() {
    // Postponed by 7 s, which no gap has: 3 s twice, and 1 s.
    let options = Options { schedule: "3s,6s", ..Options::default() };
    let system = TestSystem::running(options).await;
    let Subscriber { tenant, receiver: _receiver, webhook, .. } = system.subscriber(fails_then_succeeds(1)).await;
    publish(&system, tenant).await;
    let due = first_failed_at(&system).await + Duration::from_secs(3 + 7);
    system.sql("UPDATE deliveries SET next_attempt_at = next_attempt_at + interval '7 seconds'").await;
    ended(&system, &webhook, "succeeded", 2).await;
    assert_on_time("attempt 2", attempts(&system, &webhook).await[1].started_at, due);
}

fn signed_at(one: &Received) -> i64 {
    let signature = one.header("x-service-signature").unwrap();
    signature.strip_prefix("t=").unwrap().split_once(',').unwrap().0.parse().unwrap()
}

/// The path of a webhook whose receiver never succeeds.
const NEVER: i16 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_ends_the_retries_at_whichever_attempt_it_comes_and_seven_failures_drop_the_delivery() {
    let options = Options { schedule: "500ms,1s,1500ms,2s,2500ms,3s", ..Options::default() };
    let system = TestSystem::running(options).await;
    let (tenant, api) = system.tenant().await;
    // The path says at which attempt the receiver succeeds.
    let receiver = Receiver::start(
        &system.ca,
        behaviour(|request, nth| {
            let succeeds: usize = request.path.trim_start_matches('/').parse().unwrap();
            Reply::status(if nth == succeeds { 204 } else { 500 })
        }),
    );
    let mut webhooks = Vec::new();
    for number in 1..=NEVER {
        webhooks.push((number, api.create(&receiver.url(&number.to_string()), &["quote.closed"]).await));
    }
    publish(&system, tenant).await;
    for (number, webhook) in &webhooks {
        let (state, last) = if *number == NEVER { ("dropped", 7) } else { ("succeeded", *number) };
        ended(&system, &webhook.id, state, last).await;
    }
    no_message_is_left(&system).await;
    let (dropped, received): (Vec<_>, Vec<_>) =
        receiver.received().into_iter().partition(|one| one.path == format!("/{NEVER}"));
    assert_eq!(received.len(), 1 + 2 + 3 + 4 + 5 + 6 + 7);
    for (number, webhook) in &webhooks {
        let attempts = attempts(&system, &webhook.id).await;
        let expected = (1..=(*number).min(7)).map(|one| (one, if one < *number { "status" } else { "success" }));
        let outcomes = attempts.iter().map(|attempt| (attempt.number, attempt.outcome.as_str()));
        assert!(outcomes.eq(expected), "{attempts:?}");
        if *number < NEVER {
            let health = api.webhook(&webhook.id).await;
            assert_eq!(health["failure_count"], 0);
            assert!(health["last_success_at"].is_string());
        }
    }
    let open = "SELECT count(*) FROM deliveries WHERE next_attempt_at IS NOT NULL";
    assert_eq!(system.count(open).await, 0, "no further attempt is announced");
    assert_seven_attempts(&dropped, &webhooks[7].1.secret);
}

/// Asserts that these are seven attempts of one delivery.
fn assert_seven_attempts(received: &[Received], secret: &str) {
    assert_eq!(received.len(), 7);
    let same: BTreeSet<_> =
        received.iter().map(|one| (one.header("x-service-webhook-id").unwrap(), &one.body)).collect();
    assert_eq!(same.len(), 1, "the same id and the same body on every attempt");
    for one in received {
        verify(one, secret).unwrap();
        let age = one.at.unix_timestamp() - signed_at(one);
        assert!((0..=10).contains(&age), "signed {age} s before it arrived");
    }
    assert!(signed_at(&received[6]) >= signed_at(&received[0]) + 2, "each attempt is signed anew");
}
