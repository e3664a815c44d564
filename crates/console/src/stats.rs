//! A webhook's statistics: a chart, and the causes of failures.

use domain::OutcomeClass;
use maud::{Markup, html};

use crate::{Bar, LogQuery, Range, chart, text::number, times::milliseconds};

/// A webhook's statistics in a range.
#[derive(Clone, Debug)]
pub struct StatsSection {
    /// The range.
    pub range: Range,
    /// Its bars, oldest first.
    pub bars: Vec<Bar>,
    /// Failed attempts by cause.
    pub causes: Vec<(OutcomeClass, u64)>,
    /// Half of the attempts took this or less, and 95 % of them: in milliseconds.
    pub percentiles: (Option<u64>, Option<u64>),
}

impl StatsSection {
    pub(crate) fn render(&self, query: &LogQuery) -> Markup {
        let (succeeded, failed, dropped) = chart::sum(&self.bars);
        html! {
            section.stats #stats data-live="" {
                div.title {
                    h2 { (self.range.by) }
                    nav.switch aria-label="Range" {
                        @for range in Range::ALL {
                            a href=(query.with_range(range.word)) title=(range.name) aria-current=[(range == self.range).then_some("true")] { (range.word) }
                        }
                    }
                }
                @if succeeded + failed == 0 {
                    p.nothing { (self.range.name) ": no attempts." }
                } @else {
                    dl.figures {
                        div { dt.key.ok { "Succeeded" } dd { (number(succeeded)) } }
                        div { dt.key.no { "Failed, tried again" } dd { (number(failed.saturating_sub(dropped))) } }
                        div { dt.key.gone { "Failed, dropped" } dd { (number(dropped)) } }
                        div { dt { "Success rate" } dd { (rate(succeeded, succeeded + failed)) } }
                        @if let (Some(p50), Some(p95)) = self.percentiles {
                            div { dt { "Median time" } dd { (milliseconds(p50.into())) } }
                            div { dt { "95 % within" } dd { (milliseconds(p95.into())) } }
                        }
                    }
                    (chart::large(&self.bars, self.range))
                    (chart::table(&self.bars, self.range))
                }
                (self.causes(failed))
            }
        }
    }

    fn causes(&self, failed: u64) -> Markup {
        let mut causes: Vec<_> = self.causes.iter().filter(|(_, count)| *count > 0).collect();
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        html! {
            @if !causes.is_empty() {
                h3 { "What went wrong, and what to do" }
                table.causes {
                    @for (cause, count) in causes {
                        tr {
                            th scope="row" { (words(*cause)) p.hint { (remedy(*cause)) } }
                            td.number { (number(*count)) }
                            td.share aria-hidden="true" { svg viewBox="0 0 100 4" preserveAspectRatio="none" { rect.rest width="100" height="4" {} rect.no width=(count * 100 / failed.max(1)) height="4" {} } }
                        }
                    }
                }
            }
        }
    }
}

/// A share in percent, rounded down: only all are 100 %.
fn rate(part: u64, whole: u64) -> String {
    let thousandths = part.saturating_mul(1_000) / whole.max(1);
    if thousandths.is_multiple_of(10) {
        format!("{} %", thousandths / 10)
    } else {
        format!("{}.{} %", thousandths / 10, thousandths % 10)
    }
}

/// An outcome class in words.
pub(crate) const fn words(class: OutcomeClass) -> &'static str {
    match class {
        OutcomeClass::Success => "Succeeded",
        OutcomeClass::Status => "The receiver answered with an error",
        OutcomeClass::Timeout => "No answer in time",
        OutcomeClass::Connect => "No connection",
        OutcomeClass::Dns => "The host name could not be resolved",
        OutcomeClass::Tls => "TLS failed",
        OutcomeClass::RefusedAddress => "The address is not allowed",
        OutcomeClass::Protocol => "The response was not HTTP, or was incomplete",
    }
}

/// What an administrator can do about it.
const fn remedy(class: OutcomeClass) -> &'static str {
    match class {
        OutcomeClass::Success => "",
        OutcomeClass::Status => {
            "Open a failed delivery below: it shows the status and the beginning of the response. The receiver's own log shows the cause."
        }
        OutcomeClass::Timeout => {
            "The receiver should store the event, respond immediately with 2xx, and process the event afterwards."
        }
        OutcomeClass::Connect => {
            "Check that the receiver is running, that the port is right, and that its firewall accepts this service."
        }
        OutcomeClass::Dns => "Check the host name in the URL, and its records in the DNS.",
        OutcomeClass::Tls => {
            "The receiver needs TLS 1.2 or 1.3, a valid certificate for this host name with its whole chain, and must not require a client certificate. Open a failed delivery: its error says what to change."
        }
        OutcomeClass::RefusedAddress => "The URL leads into a private network. Use a URL that the internet can reach.",
        OutcomeClass::Protocol => {
            "Check that the receiver speaks HTTPS on this port, and check the proxies and load balancers before it."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_down() {
        for (part, whole, shown) in
            [(0, 0, "0 %"), (1, 3, "33.3 %"), (1, 2, "50 %"), (99_999, 100_000, "99.9 %"), (7, 7, "100 %")]
        {
            assert_eq!(rate(part, whole), shown);
        }
    }
}
