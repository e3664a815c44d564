//! `/api/v1/webhooks/{id}/stats/`: how a webhook's attempts went, by hour or day.

mod filter;

use std::time::Duration;

use actix_web::{HttpResponse, web::Data};
use domain::{Durations, OutcomeClass, WebhookId};
use ledger::{StatsStep, Tally};
use serde::Serialize;
use serde_json::{Map, Value};
use time::{OffsetDateTime, serde::rfc3339};

use self::filter::{Span, StatsQuery};
use super::webhooks;
use crate::{
    authentication::Administrator,
    problem::{Answer, ApiError},
    request::{Id, Parameters},
    state::State,
};

/// The answer: a span, and its steps without gaps.
#[derive(Serialize)]
struct StatsView {
    #[serde(with = "rfc3339")]
    from: OffsetDateTime,
    #[serde(with = "rfc3339")]
    to: OffsetDateTime,
    step: &'static str,
    total: Counts,
    data: Vec<StepView>,
}

#[derive(Serialize)]
struct StepView {
    #[serde(with = "rfc3339")]
    from: OffsetDateTime,
    #[serde(flatten)]
    counts: Counts,
}

/// What attempts came to.
#[derive(Serialize)]
struct Counts {
    attempts: u64,
    /// Attempts by outcome class.
    outcomes: Map<String, Value>,
    /// Deliveries that succeeded, and that were dropped.
    succeeded: u64,
    dropped: u64,
    duration_ms: Percentiles,
}

/// Estimates; `None` without an attempt.
#[derive(Serialize)]
struct Percentiles {
    p50: Option<u64>,
    p95: Option<u64>,
}

/// Answers with the statistics of the span that is asked for: the last 24 hours by hour, or the last 30 days by day,
/// unless asked otherwise. An unknown webhook counts before a faulty query.
pub(crate) async fn read(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    query: Result<Parameters<StatsQuery>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&state, &admin, webhook).await?;
    let Parameters(asked) = query?;
    let Span { from, until, step } = asked.span(OffsetDateTime::now_utc()).map_err(ApiError::Parameters)?;
    let tallies = state.ledger.stats_list(webhook, (from, until), step).await?;
    let data = by_step(&tallies, steps(from, until, step), state.attempt_timeout);
    let total = Counts::of(&tallies, state.attempt_timeout);
    Ok(HttpResponse::Ok().json(StatsView { from, to: until, step: step.as_str(), total, data }))
}

/// When the steps of a span begin.
fn steps(from: OffsetDateTime, until: OffsetDateTime, step: StatsStep) -> impl Iterator<Item = OffsetDateTime> {
    let next = move |begin: &OffsetDateTime| begin.checked_add(filter::length(step));
    std::iter::successors(Some(from), next).take_while(move |begin| *begin < until)
}

/// The counts of each step. The tallies are in the order of theirs.
fn by_step(tallies: &[Tally], steps: impl Iterator<Item = OffsetDateTime>, timeout: Duration) -> Vec<StepView> {
    let mut rest = tallies;
    let view = |from| {
        let (of_step, later) = rest.split_at(rest.partition_point(|tally| tally.step <= from));
        rest = later;
        StepView { from, counts: Counts::of(of_step, timeout) }
    };
    steps.map(view).collect()
}

impl Counts {
    /// No duration is shown as longer than `timeout`.
    fn of(tallies: &[Tally], timeout: Duration) -> Self {
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let mut outcomes: Map<String, Value> =
            OutcomeClass::ALL.into_iter().map(|class| (class.as_str().to_owned(), Value::from(0))).collect();
        let (mut attempts, mut dropped, mut durations) = (0, 0, Durations::default());
        for tally in tallies {
            attempts += number(tally.attempts);
            dropped += number(tally.dropped);
            let outcome = outcomes.entry(tally.outcome.clone()).or_insert_with(|| Value::from(0));
            *outcome = Value::from(outcome.as_u64().unwrap_or_default() + number(tally.attempts));
            durations.add(u8::try_from(tally.bucket).unwrap_or(u8::MAX), number(tally.attempts));
        }
        let percentile = |part| {
            let duration = durations.percentile(part)?.min(timeout);
            Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        };
        let duration_ms = Percentiles { p50: percentile(0.5), p95: percentile(0.95) };
        let succeeded = outcomes.get(OutcomeClass::Success.as_str()).and_then(Value::as_u64).unwrap_or_default();
        Self { attempts, outcomes, succeeded, dropped, duration_ms }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn tally(outcome: &str, bucket: i16, attempts: i64, dropped: i64) -> Tally {
        Tally { step: datetime!(2026-03-01 09:00 UTC), outcome: outcome.to_owned(), bucket, attempts, dropped }
    }

    #[test]
    fn tallies_add_up_and_every_class_is_there() {
        let tallies = [tally("success", 3, 90, 0), tally("timeout", 14, 10, 2), tally("of_a_later_version", 99, 1, 0)];
        let counts = Counts::of(&tallies, TIMEOUT);
        assert_eq!((counts.attempts, counts.succeeded, counts.dropped), (101, 90, 2));
        assert_eq!((counts.outcomes["timeout"].as_u64(), counts.outcomes["dns"].as_u64()), (Some(10), Some(0)));
        assert_eq!(counts.outcomes["of_a_later_version"], 1);
        let (p50, p95) = (counts.duration_ms.p50.unwrap(), counts.duration_ms.p95.unwrap());
        assert!((4..8).contains(&p50) && p95 == 10_000, "{p50} {p95}");
    }

    #[test]
    fn without_an_attempt_there_is_no_percentile() {
        let counts = Counts::of(&[], TIMEOUT);
        assert_eq!((counts.attempts, counts.duration_ms.p50, counts.duration_ms.p95), (0, None, None));
    }

    #[test]
    fn each_tally_counts_in_its_step() {
        let (from, until) = (datetime!(2026-03-01 08:00 UTC), datetime!(2026-03-01 11:00 UTC));
        let ten = |attempts| Tally { step: datetime!(2026-03-01 10:00 UTC), ..tally("success", 3, attempts, 0) };
        let tallies = [tally("success", 3, 5, 0), tally("status", 3, 1, 0), ten(7)];
        let steps = by_step(&tallies, steps(from, until, StatsStep::Hour), TIMEOUT);
        assert_eq!(steps.iter().map(|step| step.counts.attempts).collect::<Vec<_>>(), [0, 6, 7]);
    }

    #[test]
    fn steps_have_no_gaps() {
        let (from, until) = (datetime!(2026-03-01 09:00 UTC), datetime!(2026-03-01 12:00 UTC));
        let hours: Vec<_> = steps(from, until, StatsStep::Hour).collect();
        assert_eq!(hours, [9, 10, 11].map(|hour| from.replace_hour(hour).unwrap()));
    }
}
