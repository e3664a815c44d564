//! A webhook's statistics in a range of time.

use console::{Bar, Range, StatsSection};
use ledger::{OwnWebhook, StatsStep};
use time::OffsetDateTime;

use crate::{
    http::{ApiError, Caller},
    stats::{self, Period, StatsCounts, begin, step_length},
};

/// Returns the period of a range. Its last step is the step of `now`.
pub(super) fn period(range: Range, now: OffsetDateTime) -> Period {
    let step = if range == Range::MONTH { StatsStep::Day } else { StatsStep::Hour };
    let until = begin(now, step) + step_length(step);
    Period { from: until - range.step * range.bars, until, step }
}

/// Returns the statistics of a webhook in a range.
pub(super) async fn of(
    caller: &Caller,
    webhook: OwnWebhook,
    range: Range,
    now: OffsetDateTime,
) -> Result<StatsSection, ApiError> {
    let period = period(range, now);
    let (steps, total) = stats::of_webhook(caller, webhook, &period).await?;
    let bars = steps.chunks(steps.len().div_ceil(range.bars.unsigned_abs() as usize)).map(bar).collect();
    let percentiles = (total.duration_ms.p50, total.duration_ms.p95);
    let causes = total.outcomes.into_iter().filter(|(class, _)| !class.is_success()).collect();
    Ok(StatsSection { range, bars, causes, percentiles })
}

/// Adds several steps up to one bar.
fn bar(steps: &[(OffsetDateTime, StatsCounts)]) -> Bar {
    let sum = |count: fn(&StatsCounts) -> u64| steps.iter().map(|(_, counts)| count(counts)).sum();
    Bar {
        from: steps.first().map_or(OffsetDateTime::UNIX_EPOCH, |(from, _)| *from),
        succeeded: sum(|counts| counts.succeeded),
        failed: sum(|counts| counts.attempts - counts.succeeded),
        dropped: sum(|counts| counts.dropped),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_range_ends_with_the_step_of_now_and_has_its_number_of_bars() {
        let now = datetime!(2026-03-31 09:30 UTC);
        for (range, from, until) in [
            (Range::DAY, datetime!(2026-03-30 10:00 UTC), datetime!(2026-03-31 10:00 UTC)),
            (Range::WEEK, datetime!(2026-03-24 10:00 UTC), datetime!(2026-03-31 10:00 UTC)),
            (Range::MONTH, datetime!(2026-03-02 00:00 UTC), datetime!(2026-04-01 00:00 UTC)),
        ] {
            let period = period(range, now);
            assert_eq!((period.from, period.until), (from, until));
        }
    }
}
