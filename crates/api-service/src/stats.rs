//! `/api/v1/webhooks/{id}/stats/`: a webhook's attempts by hour or day.

pub(crate) mod period;

use std::time::Duration;

use actix_web::HttpResponse;
use domain::{Durations, OutcomeClass, WebhookId, time_text};
use ledger::{OwnWebhook, Tally};
use serde::{Serialize, Serializer};
use time::OffsetDateTime;

use self::period::StatsQuery;
pub(crate) use self::period::{Period, begin, step_length};
use crate::{
    http::{ApiError, Caller, HandlerResult, Id, Parameters},
    webhooks,
};

/// The answer: a period, and its steps without gaps.
#[derive(Serialize)]
struct StatsView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(with = "time_text")]
    to: OffsetDateTime,
    step: &'static str,
    total: StatsCounts,
    data: Vec<StepView>,
}

#[derive(Serialize)]
struct StepView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(flatten)]
    counts: StatsCounts,
}

/// The results of attempts.
#[derive(Serialize)]
pub(crate) struct StatsCounts {
    pub(crate) attempts: u64,
    /// Attempts by their outcome class, in the order of the classes.
    #[serde(serialize_with = "by_name")]
    pub(crate) outcomes: Vec<(OutcomeClass, u64)>,
    /// Deliveries that succeeded, and that were dropped.
    pub(crate) succeeded: u64,
    pub(crate) dropped: u64,
    pub(crate) duration_ms: Percentiles,
}

/// The estimated median of durations, and the 95th percentile, in milliseconds. `None` without an attempt.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: Option<u64>,
    pub(crate) p95: Option<u64>,
}

fn by_name<S: Serializer>(outcomes: &[(OutcomeClass, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(outcomes.iter().map(|(class, count)| (class.as_str(), count)))
}

/// Answers with the statistics of a period: the last 24 hours by hour, or the last 30 days by day, unless the query asks for
/// another one. An unknown webhook counts before a faulty query.
pub(crate) async fn get(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Parameters<StatsQuery>, ApiError>,
) -> HandlerResult {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Parameters(asked) = query?;
    let period = asked.period(OffsetDateTime::now_utc()).map_err(ApiError::Parameters)?;
    let (by_step, total) = of_webhook(&caller, webhook, &period).await?;
    let data = by_step.into_iter().map(|(from, counts)| StepView { from, counts }).collect();
    let (from, to, step) = (period.from, period.until, period.step.as_str());
    Ok(HttpResponse::Ok().json(StatsView { from, to, step, total, data }))
}

/// Returns the counts of each step of a period, and of all of it.
pub(crate) async fn of_webhook(
    caller: &Caller,
    webhook: OwnWebhook,
    period: &Period,
) -> Result<(Vec<(OffsetDateTime, StatsCounts)>, StatsCounts), ApiError> {
    let (tallies, timeout) =
        (caller.ledger.stats_list(webhook, (period.from, period.until), period.step).await?, caller.attempt_timeout);
    Ok((by_step(&tallies, steps(period), timeout), StatsCounts::of(&tallies, timeout)))
}

/// Returns the beginnings of the steps of a period.
pub(crate) fn steps(&Period { from, until, step }: &Period) -> impl Iterator<Item = OffsetDateTime> {
    let next = move |begin: &OffsetDateTime| begin.checked_add(step_length(step));
    std::iter::successors(Some(from), next).take_while(move |begin| *begin < until)
}

/// The counts of each step. The tallies are in the order of theirs.
fn by_step(
    tallies: &[Tally],
    steps: impl Iterator<Item = OffsetDateTime>,
    timeout: Duration,
) -> Vec<(OffsetDateTime, StatsCounts)> {
    let mut rest = tallies;
    let counted = |from| {
        let (of_step, later) = rest.split_at(rest.partition_point(|tally| tally.step <= from));
        rest = later;
        (from, StatsCounts::of(of_step, timeout))
    };
    steps.map(counted).collect()
}

impl StatsCounts {
    /// No duration is shown as longer than `timeout`.
    fn of(tallies: &[Tally], timeout: Duration) -> Self {
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let mut outcomes = OutcomeClass::ALL.map(|class| (class, 0)).to_vec();
        let (mut attempts, mut succeeded, mut dropped, mut durations) = (0, 0, 0, Durations::default());
        for tally in tallies {
            attempts += number(tally.attempts);
            dropped += number(tally.dropped);
            if tally.outcome.is_success() {
                succeeded += number(tally.attempts);
            }
            if let Some((_, count)) = outcomes.iter_mut().find(|(class, _)| *class == tally.outcome) {
                *count += number(tally.attempts);
            }
            durations.add(u8::try_from(tally.bucket).unwrap_or(u8::MAX), number(tally.attempts));
        }
        let percentile = |part| {
            let duration = durations.percentile(part)?.min(timeout);
            Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        };
        let duration_ms = Percentiles { p50: percentile(0.5), p95: percentile(0.95) };
        Self { attempts, outcomes, succeeded, dropped, duration_ms }
    }
}

#[cfg(test)]
mod tests {
    use domain::OutcomeClass::{Dns, Protocol, Status, Success, Timeout};
    use ledger::StatsStep;
    use time::macros::datetime;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn tally(outcome: OutcomeClass, bucket: i16, attempts: i64, dropped: i64) -> Tally {
        Tally { step: datetime!(2026-03-01 09:00 UTC), outcome, bucket, attempts, dropped }
    }

    #[test]
    fn tallies_add_up_and_every_class_is_there() {
        let tallies = [tally(Success, 3, 90, 0), tally(Timeout, 14, 10, 2), tally(Protocol, 99, 1, 0)];
        let counts = StatsCounts::of(&tallies, TIMEOUT);
        assert_eq!((counts.attempts, counts.succeeded, counts.dropped), (101, 90, 2));
        for outcome in [(Timeout, 10), (Dns, 0), (Protocol, 1)] {
            assert!(counts.outcomes.contains(&outcome), "{outcome:?}");
        }
        let (p50, p95) = (counts.duration_ms.p50.unwrap(), counts.duration_ms.p95.unwrap());
        assert!((4..8).contains(&p50) && p95 == 10_000, "{p50} {p95}");
    }

    #[test]
    fn without_an_attempt_there_is_no_percentile() {
        let counts = StatsCounts::of(&[], TIMEOUT);
        assert_eq!((counts.attempts, counts.duration_ms), (0, Percentiles { p50: None, p95: None }));
    }

    #[test]
    fn each_tally_counts_in_its_step() {
        let (from, until) = (datetime!(2026-03-01 08:00 UTC), datetime!(2026-03-01 11:00 UTC));
        let ten = |attempts| Tally { step: datetime!(2026-03-01 10:00 UTC), ..tally(Success, 3, attempts, 0) };
        let tallies = [tally(Success, 3, 5, 0), tally(Status, 3, 1, 0), ten(7)];
        let steps = by_step(&tallies, steps(&Period { from, until, step: StatsStep::Hour }), TIMEOUT);
        assert_eq!(steps.iter().map(|(_, counts)| counts.attempts).collect::<Vec<_>>(), [0, 6, 7]);
    }
}
