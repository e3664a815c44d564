//! Charts of attempts as SVG: bars of what succeeded, failed and was dropped.

use maud::{Markup, html};
use time::{Duration, OffsetDateTime};

use crate::{
    Range,
    text::{count, number},
    times,
};

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// When the span began.
    pub from: OffsetDateTime,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed, those that dropped their delivery included.
    pub failed: u64,
    /// Attempts that dropped their delivery.
    pub dropped: u64,
}

impl Bar {
    const fn total(&self) -> u64 {
        self.succeeded + self.failed
    }

    /// The parts from the bottom, each with its top, its height and its class, where `most` attempts are `full` high.
    fn stacked(&self, most: u64, full: u64) -> [(u64, u64, &'static str); 3] {
        let mut top = full;
        [(self.succeeded, "ok"), (self.failed.saturating_sub(self.dropped), "no"), (self.dropped, "gone")].map(
            |(count, class)| {
                let height = scaled(count, most, full).min(top);
                top -= height;
                (top, height, class)
            },
        )
    }
}

/// Several bars as one of their whole span.
pub(crate) fn sum(bars: &[Bar]) -> (u64, u64, u64) {
    bars.iter().fold((0, 0, 0), |(succeeded, failed, dropped), bar| {
        (succeeded + bar.succeeded, failed + bar.failed, dropped + bar.dropped)
    })
}

/// In words, for who cannot see it.
fn in_words(what: &str, bars: &[Bar]) -> String {
    let (succeeded, failed, dropped) = sum(bars);
    format!(
        "{what}: {} succeeded, {} failed, {} dropped",
        count(succeeded, "attempt", "attempts"),
        number(failed),
        count(dropped, "delivery", "deliveries")
    )
}

/// A small chart without axes. Each kind is one path, so that a list of many stays small.
pub(crate) fn spark(bars: &[Bar]) -> Markup {
    const CHART_HEIGHT: u64 = 28;
    const BAR_WIDTH: usize = 5;
    let most = bars.iter().map(Bar::total).max().unwrap_or_default().max(1);
    let mut paths = [String::new(), String::new(), String::new()];
    for (place, bar) in bars.iter().enumerate() {
        for (path, (top, height, _)) in paths.iter_mut().zip(bar.stacked(most, CHART_HEIGHT)) {
            if height > 0 {
                path.push_str(&format!("M{} {}v-{height}h4v{height}z", place * BAR_WIDTH, top + height));
            }
        }
    }
    let classes = ["ok", "no", "gone"];
    html! {
        svg.spark viewBox={ "0 0 " (bars.len() * BAR_WIDTH) " " (CHART_HEIGHT) } role="img" aria-label=(in_words("Last 24 hours", bars)) preserveAspectRatio="none" {
            path.base d={ "M0 " (CHART_HEIGHT) "h" (bars.len() * BAR_WIDTH) } {}
            @for (path, class) in paths.iter().zip(classes) {
                @if !path.is_empty() { path class=(class) d=(path) {} }
            }
        }
    }
}

/// The height of a count. What happened at all can be seen.
fn scaled(count: u64, most: u64, height: u64) -> u64 {
    if count == 0 { 0 } else { (count * height / most).max(2) }
}

/// The end of a scale: the next of 2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100, 120, …
fn round(most: u64) -> u64 {
    if most <= 10 {
        return most.max(2).next_multiple_of(2);
    }
    let tenth = 10u64.pow((most - 1).ilog10()) / 10;
    [12, 16, 20, 24, 30, 40, 50, 60, 80, 100]
        .map(|tenths| tenths * tenth)
        .into_iter()
        .find(|end| *end >= most)
        .unwrap_or(most)
}

/// A chart with its scales. Each bar says what it stands for.
pub(crate) fn large(bars: &[Bar], range: Range) -> Markup {
    const CHART_HEIGHT: u64 = 120;
    const BAR_WIDTH: u64 = 16;
    let most = round(bars.iter().map(Bar::total).max().unwrap_or_default());
    let width = BAR_WIDTH * bars.len() as u64;
    let lines = format!("M0 .5h{width}M0 {}h{width}", CHART_HEIGHT / 2);
    html! {
        figure.chart {
            div.scale aria-hidden="true" { @for value in [most, most / 2, 0] { span { (number(value)) } } }
            svg viewBox={ "0 0 " (width) " " (CHART_HEIGHT) } role="img" aria-label=(in_words(range.name, bars)) preserveAspectRatio="none" {
                path.grid d=(lines) {}
                path.base d={ "M0 " (CHART_HEIGHT - 1) "h" (width) } {}
                @for (place, bar) in (0u64..).zip(bars) { (column(bar, place * BAR_WIDTH, most, CHART_HEIGHT, range.step)) }
            }
            (axis(bars, range))
        }
    }
}

/// A label below the beginning of every few bars.
fn axis(bars: &[Bar], range: Range) -> Markup {
    // The bars of a month are days in UTC.
    let day = if range == Range::MONTH { "utc" } else { "day" };
    let label = |from| if range == Range::DAY { times::hour(from) } else { times::day(from, day) };
    html! {
        div.axis aria-hidden="true" {
            @for some in bars.chunks(range.bars_per_label) {
                @if let Some(bar) = some.first() { span { (label(bar.from)) } }
            }
        }
    }
}

/// What the chart shows, as a table.
pub(crate) fn table(bars: &[Bar], range: Range) -> Markup {
    html! {
        details {
            summary { "The chart as a table" }
            table.counts {
                thead { tr { th { "From" } th.number { "Succeeded" } th.number { "Failed" } th.number { "Of these, dropped" } } }
                tbody {
                    @for bar in bars.iter().rev().filter(|bar| bar.total() > 0) {
                        tr {
                            td { @if range == Range::MONTH { (times::day(bar.from, "utc")) } @else { (times::dated(bar.from)) } }
                            td.number { (number(bar.succeeded)) } td.number { (number(bar.failed)) } td.number { (number(bar.dropped)) }
                        }
                    }
                }
            }
        }
    }
}

fn column(bar: &Bar, x: u64, most: u64, full: u64, step: Duration) -> Markup {
    let title = format!(
        "{} UTC, {}: {} succeeded, {} failed, {} dropped",
        times::exact(bar.from).get(..16).unwrap_or_default(),
        times::length(step),
        bar.succeeded,
        bar.failed,
        bar.dropped
    );
    html! {
        @if bar.total() > 0 {
            g {
                title { (title) }
                @for (y, height, class) in bar.stacked(most, full).into_iter().filter(|(_, height, _)| *height > 0) {
                    rect class=(class) x=(x + 1) y=(y) width="14" height=(height) {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::NOW;

    fn bar(succeeded: u64, failed: u64, dropped: u64) -> Bar {
        Bar { from: NOW, succeeded, failed, dropped }
    }

    #[test]
    fn what_happened_once_among_many_can_be_seen() {
        let bars = [bar(1_000_000, 0, 0), bar(0, 1, 1), bar(0, 0, 0)];
        let shown = spark(&bars).into_string();
        assert!(shown.contains("M0 28v-28h4v28z") && shown.contains(r#"class="gone" d="M5 28v-2h4v2z""#), "{shown}");
        assert!(shown.contains("1\u{202f}000\u{202f}000 attempts succeeded, 1 failed, 1 delivery dropped"), "{shown}");
        let shown = large(&bars, Range::DAY).into_string();
        assert!(
            shown.contains("<span>1\u{202f}000\u{202f}000</span><span>500\u{202f}000</span><span>0</span>"),
            "{shown}"
        );
        assert!(shown.contains("2026-03-01 12:00 UTC, 1 h: 0 succeeded, 1 failed, 1 dropped"), "{shown}");
        assert_eq!(shown.matches("<rect").count(), 2);
    }

    #[test]
    fn a_scale_ends_with_a_round_number_whose_half_is_whole() {
        for (most, end) in [
            (0, 2),
            (1, 2),
            (3, 4),
            (10, 10),
            (11, 12),
            (21, 24),
            (30, 30),
            (81, 100),
            (100, 100),
            (101, 120),
            (999, 1_000),
        ] {
            assert_eq!(round(most), end, "{most}");
        }
    }

    #[test]
    fn a_day_without_events_has_no_bars() {
        assert_eq!(spark(&[bar(0, 0, 0)]).into_string().matches("<path").count(), 1);
    }
}
