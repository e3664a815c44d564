//! A delivery that succeeds late, and one that is dropped.

use std::time::Duration;

use end_to_end::{
    outsider::{Outsider, sql},
    receiver::{Received, Receiver},
    wait::SOON,
};

use crate::{
    deliveries::verified,
    environment::Environment,
    failure::{Checked, Failure, same, soon},
    fixtures::{FAILURES, Fixtures, Webhook, at},
    page::say,
};

/// How much earlier or later than planned an attempt may come, in seconds. It is late only because machines are busy.
const EARLY: f64 = 0.05;
const LATE: f64 = 2.0;

/// Shows the attempts of both deliveries next to the plan.
pub(crate) async fn show(
    environment: &Environment,
    fixtures: &Fixtures,
    receiver: &Receiver,
    upstream: &Outsider,
) -> Checked {
    let steps = environment.schedule.steps();
    let planned: Vec<f64> = std::iter::once(0.0).chain(steps.iter().map(Duration::as_secs_f64)).collect();
    let number = |nth| format!("{nth:>6}");
    row("attempt", (1..=planned.len()).map(number), "");
    row("planned", planned.iter().map(seconds), "");
    for (webhook, attempts, state) in
        [(&fixtures.fails_twice, FAILURES + 1, "succeeded"), (&fixtures.always_fails, planned.len(), "dropped")]
    {
        let received = receiver
            .try_wait_until(SOON, |received| at(webhook, received).len() >= attempts)
            .await
            .map_err(|summary| Failure::new(format!("attempts for {}", webhook.path), attempts, summary))?;
        let made = at(webhook, &received);
        let came = checked(webhook, &made, &planned)?;
        ends_as(environment, webhook, state, attempts).await?;
        row(webhook.path, came.iter().map(seconds), "");
        row("  answered", made.iter().map(|one| number(one.status.into())), &format!("  -> {state}"));
    }
    nothing_follows(environment, fixtures, receiver, upstream).await
}

fn row(label: &str, cells: impl Iterator<Item = String>, end: &str) {
    say!("  {label:<14}{}{end}", cells.collect::<String>());
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "it is mapped over slices")]
fn seconds(seconds: &f64) -> String {
    format!("{seconds:>6.2}")
}

/// Checks each attempt's signature, id, body and time. Returns the seconds after the first.
fn checked(webhook: &Webhook, made: &[&Received], planned: &[f64]) -> Checked<Vec<f64>> {
    let mut came = Vec::new();
    let Some(first) = made.first() else { return Ok(came) };
    for ((nth, one), planned) in (1..).zip(made).zip(planned) {
        let what = format!("attempt {nth} for {}", webhook.path);
        verified(&what, webhook, one)?;
        let id = |one: &Received| one.header("x-service-webhook-id").unwrap_or_default().to_owned();
        same(format!("X-Service-Webhook-Id of {what}"), &id(first), &id(one))?;
        same(format!("the body of {what}"), &first.body, &one.body)?;
        let after = (one.at - first.at).as_seconds_f64();
        if !(planned - EARLY..=planned + LATE).contains(&after) {
            let expected = format!("{planned:.1} s after the first (at most {EARLY} s earlier or {LATE} s later)");
            return Err(Failure::new(what, expected, format!("{after:.3} s")).in_log_of("dispatcher"));
        }
        came.push(after);
    }
    Ok(came)
}

/// The ledger records the last attempt a moment after the receiver saw it.
async fn ends_as(environment: &Environment, webhook: &Webhook, state: &str, attempts: usize) -> Checked {
    let query = format!("SELECT state, attempts::int4 FROM deliveries WHERE webhook_id = '{}'", webhook.id);
    let expected = vec![format!("{state} after {attempts} attempts")];
    let url = environment.database_url();
    soon(format!("the ledger's deliveries to {}", webhook.path), &expected, || async {
        let rows = sql(&url, &query).await;
        rows.iter().map(|row| format!("{} after {} attempts", row.get::<_, &str>(0), row.get::<_, i32>(1))).collect()
    })
    .await
}

/// Checks that a dropped delivery stays dropped: no queue holds a job, and no attempt comes within the longest gap.
async fn nothing_follows(
    environment: &Environment,
    fixtures: &Fixtures,
    receiver: &Receiver,
    upstream: &Outsider,
) -> Checked {
    let gap = environment.schedule.gaps().last().copied().unwrap_or_default() + Duration::from_millis(300);
    tokio::time::sleep(gap).await;
    let counts = |received: &[Received]| fixtures.webhooks().map(|webhook| at(webhook, received).len());
    let expected = [domain::EventType::ALL.len(), FAILURES + 1, environment.schedule.steps().len() + 1];
    same("requests for /always-ok, /fails-twice, /always-fails", &expected, &counts(&receiver.received()))?;
    let notices = environment.names().notices();
    let mut queues: Vec<_> = environment.topology().queues.into_iter().map(|queue| queue.name).collect();
    queues.retain(|queue| *queue != notices);
    soon("messages left in the queues", &Vec::<String>::new(), || async {
        let mut left = Vec::new();
        for queue in &queues {
            let ready = upstream.ready(queue).await;
            if ready > 0 {
                left.push(format!("{queue}: {ready}"));
            }
        }
        left
    })
    .await?;
    say!(
        "  {:.1} s later: no further attempt, and all {} queues of events and jobs are empty",
        gap.as_secs_f64(),
        queues.len()
    );
    Ok(())
}
