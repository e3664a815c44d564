//! The log of a webhook's deliveries, with its health and charts.

use std::collections::BTreeSet;

use domain::{DeliveryId, DeliveryState, EventType};
use ledger::{Delivery, LastAttempt, ListedDelivery};
use maud::{Markup, html};

use crate::{
    Frame, LogQuery, Paths, StatsSection, Tab, WebhookFrame,
    text::shown,
    times::{due, moment, relative, zone},
};

/// The states in the order in which an administrator asks for them.
const STATES: [DeliveryState; 6] = [
    DeliveryState::Dropped,
    DeliveryState::Retrying,
    DeliveryState::Pending,
    DeliveryState::Skipped,
    DeliveryState::Cancelled,
    DeliveryState::Succeeded,
];

/// The page.
#[derive(Clone, Debug)]
pub struct Deliveries {
    /// The webhook.
    pub webhook: WebhookFrame,
    /// The statistics of the webhook, unless it is deleted.
    pub stats: Option<StatsSection>,
    /// What is asked for.
    pub query: LogQuery,
    /// This page of the log.
    pub deliveries: Vec<ListedDelivery>,
    /// Those of the deliveries whose bodies are kept.
    pub bodies: BTreeSet<DeliveryId>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

impl Deliveries {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            @if let Some(stats) = &self.stats { (stats.render(&self.query)) }
            section {
                div.title { h2 #log { "Log" } p.fresh #fresh role="status" hidden { a href=(self.query.address("")) { "The log has changed: show it" } } }
                (self.states())
                (self.filter())
                (self.query.other_faults())
                @if self.query.faults.is_empty() {
                    (self.table(frame))
                    (self.pager())
                }
            }
        };
        self.webhook.page(frame, Tab::Deliveries, &content)
    }

    fn states(&self) -> Markup {
        let chip = |state: &str, label: &str| {
            html! { a.chip href=(self.query.with_state(state)) aria-current=[(state == self.query.state).then_some("true")] { (label) } }
        };
        html! {
            nav.chips aria-label="State" {
                (chip("", "all"))
                @for state in STATES { (chip(state.as_str(), state_word(state))) }
            }
        }
    }

    fn filter(&self) -> Markup {
        let query = &self.query;
        html! {
            details.filters open[query.is_narrow()] data-open[query.is_narrow()] {
                summary { "Filter by type and time" }
                form.filter method="get" action={ (Paths::webhook(self.webhook.id())) "#log" } {
                    @if !query.range.is_empty() { input type="hidden" name="range" value=(query.range); }
                    @if !query.state.is_empty() { input type="hidden" name="state" value=(query.state); }
                    label { span { "Event type" }
                        select name="event_type" {
                            option value="" { "any" }
                            @for event_type in EventType::ALL {
                                option value=(event_type.as_str()) selected[query.event_type == event_type.as_str()] { (event_type) }
                            }
                        }
                    }
                    label { span { "From (" (zone()) ")" } input type="datetime-local" step="1" autocomplete="off" name="from" value=(query.from); (query.fault("from")) }
                    label { span { "Until (" (zone()) ")" } input type="datetime-local" step="1" autocomplete="off" name="until" value=(query.until); (query.fault("until")) }
                    div.actions {
                        button { "Filter" }
                        @if query.is_filtered() { a href={ (Paths::webhook(self.webhook.id())) "#log" } { "Show all" } }
                    }
                    (query.fault("event_type"))
                }
            }
        }
    }

    fn table(&self, frame: &Frame) -> Markup {
        html! {
            @if self.deliveries.is_empty() {
                p.nothing #rows data-live="" { (self.nothing()) }
            } @else {
                table.log {
                    thead { tr { th { "State" } th { "Event" } th { "Fired" } th { "Last attempt" } th.number { "Attempts" } th { "Next attempt" } } }
                    tbody #rows data-live="rows" { @for listed in &self.deliveries { (self.row(listed, frame)) } }
                }
            }
        }
    }

    fn nothing(&self) -> &'static str {
        match (&self.next, self.query.cursor.is_empty()) {
            (Some(_), _) => "No delivery in this part of the log matches. Older ones may.",
            (None, false) => "This is the end of the log.",
            (None, true) if self.query.is_filtered() => "No delivery matches.",
            (None, true) if !matches!(self.webhook, WebhookFrame::Live(_)) => "No deliveries.",
            (None, true) => {
                "No deliveries yet. A delivery appears here when an event of a subscribed type arrives, or when you send a test."
            }
        }
    }

    fn row(&self, ListedDelivery { delivery, last_attempt, .. }: &ListedDelivery, frame: &Frame) -> Markup {
        html! {
            tr #{ "d" (delivery.id) } {
                td { (badge(delivery.state)) }
                td {
                    a href={ (Paths::delivery(self.webhook.id(), delivery.id)) (self.query.way_back()) } { code { (delivery.event_type) } }
                    @if delivery.is_test { " " span.tag { "test" } }
                    @if !self.bodies.contains(&delivery.id) { " " span.tag { "body expired" } }
                }
                td { (relative(delivery.occurred_at(), frame.now)) " " span.exact { (moment(delivery.occurred_at(), frame.now)) } }
                (last(last_attempt.as_ref()))
                td.number { (attempts(delivery.attempts)) }
                (next(delivery, self.webhook.is_paused(), frame))
            }
        }
    }

    fn pager(&self) -> Markup {
        html! {
            nav.pager aria-label="Pages of the log" {
                @if !self.query.cursor.is_empty() { a.button href=(self.query.address("")) { "Newest" } }
                @if let Some(next) = &self.next { a.button href=(self.query.address(next)) rel="next" { "Older" } }
            }
        }
    }
}

/// The longest reason of a failure, in bytes of HTML.
const MAX_REASON_BYTES: usize = 120;

/// The column of the last attempt: its status, or why it failed.
pub(crate) fn last(attempt: Option<&LastAttempt>) -> Markup {
    html! {
        td.last {
            @if let Some(attempt) = attempt {
                @match &attempt.error {
                    Some(error) => { @let (text, is_cut) = shown(error, MAX_REASON_BYTES); bdi { (text) @if is_cut { "…" } } },
                    None => { @if let Some(status) = attempt.status { (status) } },
                }
            }
        }
    }
}

/// The column of the next attempt.
pub(crate) fn next(delivery: &Delivery, is_paused: bool, frame: &Frame) -> Markup {
    html! {
        @if is_paused && delivery.state.is_waiting() {
            td.held title="Held until the webhook is active again" { "held" }
        } @else {
            td { @if let Some(at) = delivery.next_attempt_at { (due(at, frame.now)) } }
        }
    }
}

/// A state as a badge.
pub(crate) fn badge(state: DeliveryState) -> Markup {
    html! { span.badge.(class(state)) { (state_word(state)) } }
}

/// The class of a state's colour.
pub(crate) const fn class(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Succeeded => "good",
        DeliveryState::Retrying => "warn",
        DeliveryState::Dropped => "bad",
        DeliveryState::Pending | DeliveryState::Skipped | DeliveryState::Cancelled => "idle",
    }
}

/// A state in a word.
pub(crate) fn state_word(state: DeliveryState) -> &'static str {
    if state == DeliveryState::Pending { "waiting" } else { state.as_str() }
}

/// A number of attempts, with its unit where the table has no heads.
pub(crate) fn attempts(number: u16) -> Markup {
    html! { (number) span.unit { @if number == 1 { " attempt" } @else { " attempts" } } }
}
