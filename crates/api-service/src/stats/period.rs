//! The period of statistics that a query string asks for.

use ledger::StatsStep;
use time::{Duration, OffsetDateTime, Time};

use crate::http::{
    Violation,
    list::{Filter, moment},
};

/// The longest spans: an answer has some hundred steps at most.
const MAX_PERIOD_BY_HOUR: Duration = Duration::days(31);
const MAX_PERIOD_BY_DAY: Duration = Duration::days(92);

/// The parameters `from`, `to` and `step`.
#[derive(Debug, Default)]
pub(crate) struct StatsQuery {
    from: Option<OffsetDateTime>,
    to: Option<OffsetDateTime>,
    step: StatsStep,
}

/// A period of whole steps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) from: OffsetDateTime,
    pub(crate) until: OffsetDateTime,
    pub(crate) step: StatsStep,
}

impl Filter for StatsQuery {
    const PARAMETER_NAMES: &str = "from, to and step";

    fn take(&mut self, name: &str, value: &str) -> Option<Result<(), Violation>> {
        Some(match name {
            "from" => moment(name, value).map(|from| self.from = Some(from)),
            "to" => moment(name, value).map(|to| self.to = Some(to)),
            "step" => step(value).map(|step| self.step = step),
            _ => return None,
        })
    }
}

impl StatsQuery {
    /// The whole steps in which the period lies. It ends with the step of `now` unless asked otherwise.
    pub(crate) fn period(&self, now: OffsetDateTime) -> Result<Period, Vec<Violation>> {
        let Self { from, to, step } = *self;
        let (usual, most, words) = match step {
            StatsStep::Hour => (Duration::hours(24), MAX_PERIOD_BY_HOUR, "31 days by hour"),
            StatsStep::Day => (Duration::days(30), MAX_PERIOD_BY_DAY, "92 days by day"),
        };
        let to = to.unwrap_or(now);
        let from = from.unwrap_or_else(|| to.checked_sub(usual).unwrap_or(to));
        if from >= to {
            return Err(vec![Violation::new("from", "not_before_to", "must be before to")]);
        }
        if to - from > most {
            return Err(vec![Violation::new("from", "span_too_long", format!("the span may be at most {words}"))]);
        }
        let until = begin(to - Duration::nanoseconds(1), step).saturating_add(step_length(step));
        Ok(Period { from: begin(from, step), until, step })
    }
}

/// Returns the length of a step.
pub(crate) const fn step_length(step: StatsStep) -> Duration {
    match step {
        StatsStep::Hour => Duration::HOUR,
        StatsStep::Day => Duration::DAY,
    }
}

/// Returns the beginning of the step of `moment`.
pub(crate) fn begin(moment: OffsetDateTime, step: StatsStep) -> OffsetDateTime {
    let hour = if step == StatsStep::Hour { moment.hour() } else { 0 };
    moment.replace_time(Time::from_hms(hour, 0, 0).unwrap_or(Time::MIDNIGHT))
}

fn step(text: &str) -> Result<StatsStep, Violation> {
    text.parse().map_err(|_| Violation::new("step", "unknown_step", "must be hour or day"))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::http::Parameters;

    const NOW: OffsetDateTime = datetime!(2026-03-31 09:30:01 UTC);

    fn period(query: &str) -> Result<Period, Vec<(String, &'static str)>> {
        let read = Parameters::<StatsQuery>::read(query).and_then(|Parameters(asked)| asked.period(NOW));
        let codes = |wrong: Vec<Violation>| wrong.into_iter().map(|one| (one.field, one.code)).collect();
        read.map_err(codes)
    }

    #[test]
    fn a_period_is_of_whole_steps_and_ends_now_unless_asked_otherwise() {
        for (query, from, until, step) in [
            ("", datetime!(2026-03-30 09:00 UTC), datetime!(2026-03-31 10:00 UTC), StatsStep::Hour),
            ("step=day", datetime!(2026-03-01 00:00 UTC), datetime!(2026-04-01 00:00 UTC), StatsStep::Day),
            (
                "from=2026-03-30T08:59:59Z&to=2026-03-30T09:00:00Z",
                datetime!(2026-03-30 08:00 UTC),
                datetime!(2026-03-30 09:00 UTC),
                StatsStep::Hour,
            ),
            (
                "to=2026-03-30T09:00:00Z",
                datetime!(2026-03-29 09:00 UTC),
                datetime!(2026-03-30 09:00 UTC),
                StatsStep::Hour,
            ),
        ] {
            assert_eq!(period(query), Ok(Period { from, until, step }), "{query}");
        }
    }

    #[test]
    fn a_faulty_period_is_named() {
        for (query, field, code) in [
            ("from=2026-04-01T00:00:00Z", "from", "not_before_to"),
            ("from=2026-02-01T00:00:00Z", "from", "span_too_long"),
            ("from=2025-12-01T00:00:00Z&step=day", "from", "span_too_long"),
            ("step=week", "step", "unknown_step"),
            ("to=today", "to", "invalid_timestamp"),
            ("limit=5", "limit", "unknown_parameter"),
            ("step=day&step=hour", "step", "repeated_parameter"),
        ] {
            assert_eq!(period(query), Err(vec![(field.to_owned(), code)]), "{query}");
        }
    }

    #[test]
    fn times_at_the_end_of_the_calendar_are_read() {
        assert!(period("to=9999-12-31T23:59:59Z&from=9999-12-31T00:00:00Z").is_ok());
        assert!(period("to=1970-01-01T00:00:00Z").is_ok());
    }
}
