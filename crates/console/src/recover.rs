//! The recovery of what was dropped or skipped: the count first, then the progress.

use ledger::{Recoverable, RecoverableCount, Recovery, Webhook};
use maud::{Markup, html};

use crate::{
    FieldFault, Frame, Paths, Tab, WebhookFrame,
    layout::{self, token},
    text::{count, foreign, number, sentence},
    times::{for_input, full, relative},
};

/// The form, and what it would recover.
#[derive(Clone, Debug)]
pub struct RecoverForm {
    /// The webhook.
    pub webhook: Webhook,
    /// The beginning of the span, as it was written.
    pub since: String,
    /// Its end, which may be empty.
    pub until: String,
    /// The states.
    pub states: Vec<Recoverable>,
    /// What is wrong with these.
    pub faults: Vec<FieldFault>,
    /// How many deliveries that are, once it was asked for.
    pub count: Option<RecoverableCount>,
    /// A recovery that is running.
    pub running: Option<Recovery>,
}

impl RecoverForm {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let webhook = &self.webhook;
        let is = |state| self.states.contains(&state);
        let since = if self.since.is_empty() { self.suggestion(frame) } else { self.since.clone() };
        let content = html! {
            @if let Some(running) = &self.running { (under_way(webhook, running)) }
            section {
                h2 { "Recover lost deliveries" }
                p { "Dropped deliveries, and those skipped during a pause, are sent again, at a limited rate, and retried as usual. First count them: nothing is sent before you confirm." }
                @if webhook.settings.is_active && webhook.health.failure_count > 0 { p.banner.warn { strong { "The webhook is failing at the moment." } " Recovered deliveries will probably fail too: fix the receiver and send a test before you recover." } }
                form.stack method="get" action=(Paths::of_webhook(webhook.id, "recover")) data-outdates="counted" {
                    div.pair {
                        (self.time("since", "Events from (UTC)", &since))
                        (self.time("until", "Until (UTC), may be empty", &self.until))
                    }
                    fieldset.field aria-describedby="states-fault" {
                        legend { "Deliveries" }
                        label.check { input type="checkbox" name="states" value="dropped" checked[is(Recoverable::Dropped)]; "Dropped: every attempt failed" }
                        label.check { input type="checkbox" name="states" value="skipped" checked[is(Recoverable::Skipped)]; "Skipped: the webhook was paused" }
                        (self.fault("states"))
                    }
                    div.actions { button.primary[self.count.is_none()] { "Count them" } }
                }
                (self.confirmation(frame))
                p.note { "Earlier recoveries are in the " a href=(Paths::of_webhook(webhook.id, "history")) { "history" } "." }
            }
        };
        WebhookFrame::Live(Box::new(webhook.clone())).page(frame, Tab::Recover, &content)
    }

    fn time(&self, field: &str, label: &str, value: &str) -> Markup {
        let is_faulty = FieldFault::of(&self.faults, field).next().is_some();
        html! {
            div.field {
                label for=(field) { (label) }
                input type="datetime-local" step="1" id=(field) name=(field) value=(value) required[field == "since"]
                    aria-describedby={ (field) "-fault" } aria-invalid=[is_faulty.then_some("true")] autofocus[is_faulty];
                (self.fault(field))
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

    /// What was counted, in words.
    fn asked(&self) -> String {
        let states: Vec<_> = self.states.iter().map(|state| state.as_str()).collect();
        let spaced = |time: &str| time.replace('T', " ");
        let until = if self.until.is_empty() { String::new() } else { format!(" until {}", spaced(&self.until)) };
        format!("{} deliveries of events from {}{until} UTC", states.join(" or "), spaced(&self.since))
    }

    fn confirmation(&self, frame: &Frame) -> Markup {
        let Some(counted) = self.count else { return html! {} };
        let shown = u64::try_from(counted.count).unwrap_or_default();
        let deliveries = count(shown, "delivery", "deliveries");
        let most = if counted.is_exact { "" } else { "At least " };
        html! {
            div.result #counted role="status" {
                @if shown == 0 {
                    p { strong { "None found." } " No delivery of this kind and time, whose body is still kept, can be recovered." }
                } @else {
                    p { strong { (most) (deliveries) } " would be sent again to " span.url { (foreign(&self.webhook.settings.url)) } ": " (self.asked()) "." }
                    @if !self.webhook.settings.is_active { p.note { "The webhook is paused: they are kept until it is activated." } }
                    form method="post" action=(Paths::of_webhook(self.webhook.id, "recover")) {
                        (token(frame))
                        input type="hidden" name="since" value=(self.since);
                        input type="hidden" name="until" value=(self.until);
                        @for state in &self.states { input type="hidden" name="states" value=(state.as_str()); }
                        button.primary { "Send " (deliveries) " again" }
                    }
                }
            }
        }
    }
}

fn under_way(webhook: &Webhook, running: &Recovery) -> Markup {
    html! {
        p.banner.idle {
            strong { "A recovery is running" } ": " (number(u64::try_from(running.resent).unwrap_or_default())) " sent so far. "
            a href=(Paths::recovery(webhook.id, running.id)) { "See its progress" }
        }
    }
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
        let resent = u64::try_from(recovery.resent).unwrap_or_default();
        let content = html! {
            h1 { "Recovery" }
            section #progress data-live=[recovery.finished_at.is_none().then_some("")] {
                @match recovery.finished_at {
                    Some(at) => p.banner.good { strong { "Done" } " " (relative(at, frame.now)) ": " (count(resent, "delivery was", "deliveries were")) " sent again." },
                    None => {
                        p.banner.idle { strong { "Under way" } ": " (count(resent, "delivery", "deliveries")) " sent again so far" (self.left()) "." }
                        (self.bar(resent))
                    }
                }
                dl.facts {
                    div { dt { "Events from" } dd { (full(recovery.since)) } }
                    @if let Some(until) = recovery.until { div { dt { "Until" } dd { (full(until)) } } }
                    div { dt { "What was" } dd { (recovery.states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(" or ")) } }
                    @if !recovery.outcomes.is_empty() {
                        div { dt { "Last attempt" } dd { (recovery.outcomes.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(" or ")) } }
                    }
                    div { dt { "Begun" } dd { (full(recovery.created_at)) } }
                }
                @if recovery.finished_at.is_none() { p.note { "You may leave this page: the recovery continues. It waits while very many jobs are queued." } }
            }
            p { a.button href={ (Paths::webhook(self.webhook.id())) "#log" } { "See the log" } }
        };
        layout::page(frame, "Recovery", &self.webhook.crumbs(), &content)
    }

    fn left(&self) -> String {
        let left = self.left.map(|left| (u64::try_from(left.count).unwrap_or_default(), left.is_exact));
        left.map_or_else(String::new, |(left, exact)| {
            format!(", {}{} to go", if exact { "" } else { "more than " }, number(left))
        })
    }

    fn bar(&self, resent: u64) -> Markup {
        let left = self.left.map(|left| u64::try_from(left.count).unwrap_or_default());
        html! { @if let Some(left) = left { progress max=(resent + left) value=(resent) aria-label="Progress" {} } }
    }
}
