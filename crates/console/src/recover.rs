//! Recoveries of what was dropped or skipped: the count first, then the progress, and the list of a webhook's recoveries.

use domain::{EventType, OutcomeClass};
use ledger::{NewRecovery, Recoverable, RecoverableCount, Recovery, Webhook};
use maud::{Markup, html};

use crate::{
    FieldFault, Frame, Paths, Tab, WebhookFrame,
    history::older,
    layout::{self, button, token},
    text::{count, foreign, number, sentence},
    times::{for_input, full, relative, zone},
};

/// The form, what it would recover, and the recoveries that there are.
#[derive(Clone, Debug)]
pub struct RecoverForm {
    /// The webhook.
    pub webhook: Webhook,
    /// The beginning of the period, as it was written.
    pub from: String,
    /// Its end, which may be empty.
    pub to: String,
    /// The states.
    pub states: Vec<Recoverable>,
    /// The event types; none: all of them.
    pub event_types: Vec<EventType>,
    /// What is wrong with these.
    pub faults: Vec<FieldFault>,
    /// The recovery that was asked for, and its number of deliveries.
    pub counted: Option<(NewRecovery, RecoverableCount)>,
    /// The webhook's recoveries, newest first.
    pub recoveries: Vec<Recovery>,
    /// The cursor of the next page of these.
    pub next: Option<String>,
}

impl RecoverForm {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let webhook = &self.webhook;
        let is = |state| self.states.contains(&state);
        let from = if self.from.is_empty() { self.suggestion(frame) } else { self.from.clone() };
        let content = html! {
            section {
                h2 { "Recover lost deliveries" }
                p { "Dropped deliveries, and those skipped during a pause, are sent again, at a limited rate, and retried as usual. First count them: nothing is sent before you confirm." }
                @if webhook.settings.is_active && webhook.health.failure_count > 0 { p.banner.warn { strong { "The webhook is failing at the moment." } " Recovered deliveries will probably fail too: fix the receiver and send a test before you recover." } }
                form.stack method="get" action=(Paths::of_webhook(webhook.id, "recover")) data-outdates="counted" {
                    div.pair {
                        (self.time("from", &html! { "Events from (" (zone()) ")" }, &from))
                        (self.time("to", &html! { "Until (" (zone()) "), may be empty" }, &self.to))
                    }
                    fieldset.field aria-describedby="states-fault" {
                        legend { "Deliveries" }
                        label.check { input type="checkbox" name="states" value="dropped" checked[is(Recoverable::Dropped)]; "Dropped: every attempt failed" }
                        label.check { input type="checkbox" name="states" value="skipped" checked[is(Recoverable::Skipped)]; "Skipped: the webhook was paused" }
                        (self.fault("states"))
                    }
                    (self.types())
                    div.actions { button.primary[self.counted.is_none()] { "Count them" } }
                }
                (self.confirmation(frame))
            }
            // A count is not made again while the page is open.
            section data-live-from=[self.counted.is_some().then(|| Paths::of_webhook(webhook.id, "recover"))] {
                h2 { "Recoveries" }
                @if self.recoveries.is_empty() { p.nothing { "None." } }
                ol.entries #recoveries data-live="" { @for recovery in &self.recoveries { (entry(webhook, recovery, frame)) } }
                (older("cursor", self.next.as_deref()))
            }
        };
        WebhookFrame::Live(Box::new(webhook.clone())).page(frame, Tab::Recover, &content)
    }

    fn time(&self, field: &str, label: &Markup, value: &str) -> Markup {
        let is_faulty = FieldFault::of(&self.faults, field).next().is_some();
        html! {
            div.field {
                label for=(field) { (label) }
                input type="datetime-local" step="1" autocomplete="off" id=(field) name=(field) value=(value) required[field == "from"]
                    aria-describedby={ (field) "-fault" } aria-invalid=[is_faulty.then_some("true")] autofocus[is_faulty];
                (self.fault(field))
            }
        }
    }

    /// The event types, of which none need be chosen.
    fn types(&self) -> Markup {
        let is_narrow = !self.event_types.is_empty() || FieldFault::of(&self.faults, "event_types").next().is_some();
        html! {
            details open[is_narrow] {
                summary { "Only certain event types" }
                fieldset.field aria-describedby="event_types-fault" {
                    legend { "Event types" }
                    @for event_type in EventType::ALL {
                        label.check { input type="checkbox" name="event_types" value=(event_type.as_str()) checked[self.event_types.contains(&event_type)]; code { (event_type) } }
                    }
                    (self.fault("event_types"))
                }
            }
        }
    }

    /// What is wrong with a field, beside it.
    fn fault(&self, field: &str) -> Markup {
        html! { p.fault #{ (field) "-fault" } { @for message in FieldFault::of(&self.faults, field) { (sentence(message)) " " } } }
    }

    /// When it began to fail, else a week ago.
    fn suggestion(&self, frame: &Frame) -> String {
        let begun = self.webhook.health.failing_since.map(|since| since - time::Duration::DAY);
        for_input(begun.unwrap_or(frame.now - time::Duration::WEEK).min(frame.now - time::Duration::WEEK))
    }

    fn confirmation(&self, frame: &Frame) -> Markup {
        let Some((wanted, counted)) = &self.counted else { return html! {} };
        let total = u64::try_from(counted.total()).unwrap_or_default();
        let most = if counted.is_exact { "" } else { "At least " };
        html! {
            div.result #counted role="status" {
                @if total == 0 && counted.is_exact {
                    p { strong { "None found." } " No delivery of this kind and time, whose body is still kept, can be recovered." }
                } @else {
                    p {
                        strong { (most) (apart(*counted)) @if total == 1 { " delivery" } @else { " deliveries" } }
                        " would be sent again to " span.url { (foreign(&self.webhook.settings.url)) } ", of events from " (full(wanted.since))
                        @if let Some(until) = wanted.until { " until " (full(until)) }
                        "."
                    }
                    @if !self.webhook.settings.is_active { p.note { "The webhook is paused: they are held until it is active again." } }
                    form method="post" action=(Paths::of_webhook(self.webhook.id, "recover")) {
                        (token(frame))
                        input type="hidden" name="from" value=(self.from);
                        input type="hidden" name="to" value=(self.to);
                        @for state in &self.states { input type="hidden" name="states" value=(state.as_str()); }
                        @for event_type in &self.event_types { input type="hidden" name="event_types" value=(event_type.as_str()); }
                        @if counted.is_exact { button.primary { "Send " (count(total, "delivery", "deliveries")) " again" } }
                        @else { button.primary { "Send all of them again" } }
                    }
                }
            }
        }
    }
}

/// The numbers of dropped and skipped deliveries, without those that are zero.
fn apart(counted: RecoverableCount) -> String {
    let parts =
        [(counted.dropped, "dropped"), (counted.skipped, "skipped")].into_iter().filter(|(count, _)| *count > 0);
    let words = parts.map(|(count, state)| format!("{} {state}", number(u64::try_from(count).unwrap_or_default())));
    words.collect::<Vec<_>>().join(" and ")
}

/// An entry of the list of recoveries.
fn entry(webhook: &Webhook, recovery: &Recovery, frame: &Frame) -> Markup {
    html! {
        li {
            p { strong { a href=(Paths::recovery(webhook.id, recovery.id)) { (word(recovery)) } } " " (relative(recovery.created_at, frame.now)) span.exact { (full(recovery.created_at)) } }
            p { (resent(recovery)) " sent again" }
        }
    }
}

const fn word(recovery: &Recovery) -> &'static str {
    match (recovery.finished_at, recovery.is_stopped) {
        (None, _) => "Under way",
        (Some(_), false) => "Done",
        (Some(_), true) => "Stopped",
    }
}

fn resent(recovery: &Recovery) -> String {
    count(u64::try_from(recovery.resent).unwrap_or_default(), "delivery", "deliveries")
}

/// The progress of a recovery.
#[derive(Clone, Debug)]
pub struct RecoveryProgress {
    /// The webhook.
    pub webhook: WebhookFrame,
    /// The recovery.
    pub recovery: Recovery,
    /// How many deliveries it has left, if that was counted.
    pub left: Option<RecoverableCount>,
}

impl RecoveryProgress {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let recovery = &self.recovery;
        let words = |names: Vec<&'static str>| names.join(" or ");
        let content = html! {
            h1 { "Recovery" }
            section #progress data-live=[recovery.finished_at.is_none().then_some("")] {
                @match recovery.finished_at {
                    Some(at) => p.banner.(if recovery.is_stopped { "idle" } else { "good" }) { strong { (word(recovery)) } " " (relative(at, frame.now)) ": " (resent(recovery)) " sent again." },
                    None => {
                        p.banner.idle { strong { (word(recovery)) } ": " (resent(recovery)) " sent again so far" (self.left()) "." }
                        (self.bar())
                    }
                }
                dl.facts {
                    div { dt { "Events from" } dd { (full(recovery.since)) } }
                    @if let Some(until) = recovery.until { div { dt { "Until" } dd { (full(until)) } } }
                    div { dt { "What was" } dd { (words(recovery.states.iter().map(|state| state.as_str()).collect())) } }
                    @if !recovery.event_types.is_empty() {
                        div { dt { "Event types" } dd { (words(recovery.event_types.iter().copied().map(EventType::as_str).collect())) } }
                    }
                    @if !recovery.outcomes.is_empty() {
                        div { dt { "Last attempt" } dd { (words(recovery.outcomes.iter().copied().map(OutcomeClass::as_str).collect())) } }
                    }
                    div { dt { "Begun" } dd { (full(recovery.created_at)) } }
                }
                @if recovery.finished_at.is_none() {
                    p.note { "You may leave this page: the recovery continues. It waits while very many jobs are queued." }
                    @if matches!(self.webhook, WebhookFrame::Live(_)) {
                        (button(frame, &format!("{}stop/", Paths::recovery(self.webhook.id(), recovery.id)), "Stop the recovery", ""))
                    }
                }
            }
            p { a.button href={ (Paths::webhook(self.webhook.id())) "#log" } { "See the log" } }
        };
        layout::page(frame, "Recovery", &self.webhook.crumbs(), &content)
    }

    fn left(&self) -> String {
        let Some(left) = self.left else { return String::new() };
        let more = if left.is_exact { "" } else { "more than " };
        let apart = if left.total() == 0 { "0".to_owned() } else { apart(left) };
        format!(", {more}{apart} to go")
    }

    fn bar(&self) -> Markup {
        let left = self.left.map(|left| u64::try_from(left.total()).unwrap_or_default());
        let resent = u64::try_from(self.recovery.resent).unwrap_or_default();
        html! { @if let Some(left) = left { progress max=(resent + left) value=(resent) aria-label="Progress" {} } }
    }
}
