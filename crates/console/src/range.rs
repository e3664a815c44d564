//! The span of time of a chart.

use time::Duration;

/// The span of time that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The word in the query string.
    pub word: &'static str,
    /// The span of a bar.
    pub step: Duration,
    /// How many bars there are.
    pub bars: i32,
    /// How many bars stand above a label.
    pub(crate) bars_per_label: usize,
    /// The heading of the chart.
    pub(crate) by: &'static str,
    /// The name for people.
    pub(crate) name: &'static str,
}

impl Range {
    /// 24 hours, by hour.
    pub const DAY: Self = Self {
        word: "24h",
        step: Duration::HOUR,
        bars: 24,
        bars_per_label: 6,
        by: "Attempts by hour",
        name: "Last 24 hours",
    };
    /// 7 days, by 6 hours.
    pub const WEEK: Self = Self {
        word: "7d",
        step: Duration::hours(6),
        bars: 28,
        bars_per_label: 4,
        by: "Attempts by 6 hours",
        name: "Last 7 days",
    };
    /// 30 days, by day.
    pub const MONTH: Self = Self {
        word: "30d",
        step: Duration::DAY,
        bars: 30,
        bars_per_label: 5,
        by: "Attempts by day (UTC)",
        name: "Last 30 days",
    };
    /// Every range.
    pub const ALL: [Self; 3] = [Self::DAY, Self::WEEK, Self::MONTH];
}
