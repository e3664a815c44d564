//! The span of time of a chart.

use time::Duration;

/// The span of time that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// 24 hours, by hour.
    #[default]
    Day,
    /// 7 days, by 6 hours.
    Week,
    /// 30 days, by day.
    Month,
}

impl Range {
    /// Every range.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// The word in the query string.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    /// Reads the word.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.as_str() == word)
    }

    /// The span of a bar.
    pub const fn step(self) -> Duration {
        match self {
            Self::Day => Duration::HOUR,
            Self::Week => Duration::hours(6),
            Self::Month => Duration::DAY,
        }
    }

    /// How many bars there are.
    pub const fn bars(self) -> i32 {
        match self {
            Self::Day => 24,
            Self::Week => 28,
            Self::Month => 30,
        }
    }

    /// How many bars stand above a label.
    pub(crate) const fn bars_per_label(self) -> usize {
        match self {
            Self::Day => 6,
            Self::Week => 4,
            Self::Month => 5,
        }
    }

    pub(crate) const fn by(self) -> &'static str {
        match self {
            Self::Day => "Attempts by hour",
            Self::Week => "Attempts by 6 hours",
            Self::Month => "Attempts by day (UTC)",
        }
    }

    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Day => "Last 24 hours",
            Self::Week => "Last 7 days",
            Self::Month => "Last 30 days",
        }
    }
}
