//! Charts of attempts as SVG: bars of what succeeded, failed and was dropped.

use maud::{Markup, html};
use time::{Duration, OffsetDateTime};

use crate::{text::number, times};

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

    /// The parts from the bottom, with their class.
    const fn parts(&self) -> [(u64, &'static str); 3] {
        [(self.succeeded, "ok"), (self.failed.saturating_sub(self.dropped), "no"), (self.dropped, "gone")]
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
        "{what}: {} attempts succeeded, {} failed, {} deliveries dropped",
        number(succeeded),
        number(failed),
        number(dropped)
    )
}

/// A small chart without axes. Each kind is one path, so that a list of many stays small.
pub(crate) fn spark(bars: &[Bar]) -> Markup {
    const HEIGHT: u64 = 28;
    const STEP: usize = 5;
    let most = bars.iter().map(Bar::total).max().unwrap_or_default().max(1);
    let mut paths = [String::new(), String::new(), String::new()];
    for (place, bar) in bars.iter().enumerate() {
        let mut bottom = HEIGHT;
        for (path, (count, _)) in paths.iter_mut().zip(bar.parts()) {
            let height = height(count, most, HEIGHT).min(bottom);
            if height > 0 {
                path.push_str(&format!("M{} {bottom}v-{height}h4v{height}z", place * STEP));
                bottom -= height;
            }
        }
    }
    let classes = ["ok", "no", "gone"];
    html! {
        svg.spark viewBox={ "0 0 " (bars.len() * STEP) " " (HEIGHT) } role="img" aria-label=(in_words("Last 24 hours", bars)) preserveAspectRatio="none" {
            path.base d={ "M0 " (HEIGHT) "h" (bars.len() * STEP) } {}
            @for (path, class) in paths.iter().zip(classes) {
                @if !path.is_empty() { path class=(class) d=(path) {} }
            }
        }
    }
}

/// The height of a count. What happened at all can be seen.
fn height(count: u64, most: u64, height: u64) -> u64 {
    if count == 0 { 0 } else { (count * height / most).max(2) }
}

/// A chart with its scale. Each bar says what it stands for.
pub(crate) fn large(what: &str, bars: &[Bar], step: Duration) -> Markup {
    const HEIGHT: u64 = 120;
    const STEP: u64 = 16;
    let most = bars.iter().map(Bar::total).max().unwrap_or_default().max(1);
    let width = STEP * bars.len() as u64;
    let (first, last) = (bars.first(), bars.last());
    html! {
        figure.chart {
            div.scale aria-hidden="true" { span { (number(most)) } span { "0" } }
            svg viewBox={ "0 0 " (width) " " (HEIGHT) } role="img" aria-label=(in_words(what, bars)) preserveAspectRatio="none" {
                path.grid d={ "M0 .5h" (width) "M0 " (HEIGHT / 2) "h" (width) } {}
                path.base d={ "M0 " (HEIGHT - 1) "h" (width) } {}
                @for (place, bar) in (0u64..).zip(bars) { (column(bar, place * STEP, most, HEIGHT, step)) }
            }
            @if let (Some(first), Some(last)) = (first, last) {
                div.axis aria-hidden="true" { (times::clock(first.from, last.from)) (times::clock(last.from + step, last.from)) }
            }
            figcaption {
                span.key.ok { "succeeded" } span.key.no { "failed, tried again" } span.key.gone { "failed for the last time: dropped" }
            }
        }
    }
}

fn column(bar: &Bar, x: u64, most: u64, full: u64, step: Duration) -> Markup {
    let mut bottom = full;
    let mut rects = Vec::new();
    for (count, class) in bar.parts() {
        let height = height(count, most, full).min(bottom);
        if height > 0 {
            bottom -= height;
            rects.push((bottom, height, class));
        }
    }
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
                @for (y, height, class) in rects {
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
        assert!(
            shown.contains("1\u{202f}000\u{202f}000 attempts succeeded, 1 failed, 1 deliveries dropped"),
            "{shown}"
        );
        let shown = large("Last day", &bars, Duration::HOUR).into_string();
        assert!(shown.contains("2026-03-01 12:00 UTC, 1 h: 0 succeeded, 1 failed, 1 dropped"), "{shown}");
        assert_eq!(shown.matches("<rect").count(), 2);
    }

    #[test]
    fn a_day_without_events_has_no_bars() {
        assert_eq!(spark(&[bar(0, 0, 0)]).into_string().matches("<path").count(), 1);
    }
}
