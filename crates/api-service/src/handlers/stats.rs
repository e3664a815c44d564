//! `/api/v1/webhooks/{id}/stats/`: how a webhook's attempts went, by hour or day.

use actix_web::HttpResponse;
use domain::{WebhookId, time_text};
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    calls::{
        stats::{self, Counts},
        webhooks,
    },
    http::{Answer, ApiError, Caller, Id, Parameters},
    request::StatsQuery,
};

/// The answer: a span, and its steps without gaps.
#[derive(Serialize)]
struct StatsView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(with = "time_text")]
    to: OffsetDateTime,
    step: &'static str,
    total: Counts,
    data: Vec<StepView>,
}

#[derive(Serialize)]
struct StepView {
    #[serde(with = "time_text")]
    from: OffsetDateTime,
    #[serde(flatten)]
    counts: Counts,
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
    let (by_step, total) = stats::of_webhook(&caller, webhook, &span).await?;
    let data = by_step.into_iter().map(|(from, counts)| StepView { from, counts }).collect();
    let (from, to, step) = (span.from, span.until, span.step.as_str());
    Ok(HttpResponse::Ok().json(StatsView { from, to, step, total, data }))
}
