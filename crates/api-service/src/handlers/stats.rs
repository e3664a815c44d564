//! `/api/v1/webhooks/{id}/stats/`: how a webhook's attempts went, by hour or day.

use actix_web::HttpResponse;
use domain::{WebhookId, time_text};
use serde::Serialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::{
    caller::Caller,
    calls::{
        stats::{self, Counts},
        webhooks,
    },
    problem::{Answer, ApiError},
    request::{Id, Parameters, StatsQuery},
};

/// The answer: a span, and its steps without gaps.
#[derive(Serialize)]
struct StatsView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(with = "time_text")]
    to: OffsetDateTime,
    step: &'static str,
    total: CountsView,
    data: Vec<StepView>,
}

#[derive(Serialize)]
struct StepView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(flatten)]
    counts: CountsView,
}

/// What attempts came to.
#[derive(Serialize)]
struct CountsView {
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
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    query: Result<Parameters<StatsQuery>, ApiError>,
) -> Answer {
    let webhook = webhooks::known(&caller, webhook).await?;
    let Parameters(asked) = query?;
    let span = asked.span(OffsetDateTime::now_utc()).map_err(ApiError::Parameters)?;
    let tallies = stats::of_webhook(&caller, webhook, &span).await?;
    let by_step = stats::by_step(&tallies, stats::steps(&span), caller.attempt_timeout);
    let data = by_step.into_iter().map(|(from, counts)| StepView { from, counts: CountsView::of(counts) }).collect();
    let total = CountsView::of(Counts::of(&tallies, caller.attempt_timeout));
    let (from, to, step) = (span.from, span.until, span.step.as_str());
    Ok(HttpResponse::Ok().json(StatsView { from, to, step, total, data }))
}

impl CountsView {
    fn of(Counts { attempts, outcomes, succeeded, dropped, p50, p95 }: Counts) -> Self {
        let outcomes = outcomes.into_iter().map(|(class, count)| (class.as_str().to_owned(), count.into())).collect();
        Self { attempts, outcomes, succeeded, dropped, duration_ms: Percentiles { p50, p95 } }
    }
}
