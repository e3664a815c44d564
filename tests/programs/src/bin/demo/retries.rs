//! A delivery that succeeds late, and one that is dropped.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    receiver::{Received, verify},
    system::System,
    wait::{SOON, until},
};

use crate::{
    fixtures::{FAILURES, Fixtures, Webhook},
    page::say,
};

/// How much earlier or later than planned an attempt may come, in seconds. It is late only because machines are busy.
const MAX_EARLY_SECONDS: f64 = 0.05;
const MAX_LATE_SECONDS: f64 = 2.0;

/// Shows the attempts of both deliveries next to the plan.
pub(crate) async fn show(system: &System, fixtures: &Fixtures) {
    let schedule = system.settings().retry.schedule;
    let steps = schedule.steps();
    let planned: Vec<f64> = std::iter::once(0.0).chain(steps.iter().map(Duration::as_secs_f64)).collect();
    let number = |nth| format!("{nth:>6}");
    let seconds = |seconds: &f64| format!("{seconds:>6.2}");
    row("attempt", (1..=planned.len()).map(number), "");
    row("planned", planned.iter().map(seconds), "");
    for (webhook, attempts, state) in
        [(&fixtures.fails_twice, FAILURES + 1, "succeeded"), (&fixtures.always_fails, planned.len(), "dropped")]
    {
        let received = fixtures.receiver.wait_until(SOON, |received| webhook.among(received).len() >= attempts).await;
        let made = webhook.among(&received);
        row(webhook.path, checked(webhook, &made, &planned).iter().map(seconds), "");
        // The ledger records the last attempt a moment after the receiver saw it.
        let ended = format!(
            "SELECT count(*) FROM deliveries WHERE webhook_id = '{}' AND (state, attempts) = ('{state}', {attempts})",
            webhook.id
        );
        system.until_count(&ended, 1, SOON).await;
        row("  answered", made.iter().map(|one| number(one.status.into())), &format!("  -> {state}"));
    }
    // A dropped delivery stays dropped: no queue holds a job, and no attempt comes within the longest gap.
    let gap = schedule.gaps().last().copied().unwrap_or_default() + Duration::from_millis(300);
    tokio::time::sleep(gap).await;
    let received = fixtures.receiver.received();
    let counts = fixtures.webhooks().map(|webhook| webhook.among(&received).len());
    assert_eq!(counts, [EventType::ALL.len(), FAILURES + 1, planned.len()], "requests for each webhook");
    let queues = system.queues();
    for queue in &queues {
        until(&format!("{queue} is empty"), SOON, || async { system.upstream.ready(queue).await == 0 }).await;
    }
    say!(
        "  {:.1} s later: no further attempt, and all {} queues of events and jobs are empty",
        gap.as_secs_f64(),
        queues.len()
    );
}

fn row(label: &str, cells: impl Iterator<Item = String>, end: &str) {
    say!("  {label:<14}{}{end}", cells.collect::<String>());
}

/// Checks each attempt's signature, id, body and time. Returns the seconds after the first.
fn checked(webhook: &Webhook, made: &[&Received], planned: &[f64]) -> Vec<f64> {
    let first = made[0];
    let check = |(one, planned): (&&Received, &f64)| {
        verify(one, &webhook.secret).expect("signature, envelope and headers are as specified");
        let id = |one: &Received| one.header("x-service-webhook-id").map(str::to_owned);
        assert_eq!((id(one), &one.body), (id(first), &first.body), "an attempt for {}", webhook.path);
        let after = (one.at - first.at).as_seconds_f64();
        let on_time = planned - MAX_EARLY_SECONDS..=planned + MAX_LATE_SECONDS;
        assert!(on_time.contains(&after), "{}: {after:.3} s after the first, not {planned:.1}", webhook.path);
        after
    };
    made.iter().zip(planned).map(check).collect()
}
