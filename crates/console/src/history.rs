//! Changes of a webhook, and the notices that administrators got.

use domain::{Notice, NoticeType, WebhookId};
use ledger::{Action, HistoryEntry};
use maud::{Markup, html};
use serde_json::Value;

use crate::{
    Frame, Paths, Tab, WebhookFrame,
    text::{self, foreign, query, shortened},
    times::{for_input, from_text, full, relative},
};

/// The maximum of a notice that is shown, in bytes of HTML: twice as much as a name and a failure of the usual length have.
const MAX_SUMMARY_BYTES: usize = 2_000;

/// Notices about a webhook, a page of them.
#[derive(Clone, Debug)]
pub struct NoticeList {
    /// Newest first.
    pub notices: Vec<Notice>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// The page.
#[derive(Clone, Debug)]
pub struct History {
    /// The webhook.
    pub webhook: WebhookFrame,
    /// What administrators did, newest first.
    pub entries: Vec<HistoryEntry>,
    /// The cursor of the next page.
    pub next: Option<String>,
    /// The notices that they got.
    pub notices: NoticeList,
}

impl History {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            section {
                h2 { "Changes by administrators" }
                @if self.entries.is_empty() { p.nothing { "Nothing." } }
                ol.entries { @for entry in &self.entries { (acted(entry, self.webhook.id(), frame)) } }
                (older("cursor", self.next.as_deref()))
            }
            section {
                h2 { "Notices" }
                p.note { "Notices that your administrators received about this webhook." }
                @if self.notices.notices.is_empty() { p.nothing { "None." } }
                ol.entries { @for notice in &self.notices.notices { (item(notice, self.webhook.id(), frame)) } }
                (older("notices", self.notices.next.as_deref()))
            }
        };
        self.webhook.page(frame, Tab::History, &content)
    }
}

/// The link to a list's next page, whose cursor the parameter `name` takes.
pub(crate) fn older(name: &str, next: Option<&str>) -> Markup {
    html! { @if let Some(next) = next { nav.pager { a.button href={ "?" (query([(name, next)])) } { "Older" } } } }
}

fn item(notice: &Notice, webhook: WebhookId, frame: &Frame) -> Markup {
    let (class, word) = (class(notice.notice_type), notice.notice_type.as_str().trim_start_matches("webhook."));
    html! { li { p { span.badge.(class) { (word) } " " (relative(notice.created_at, frame.now)) span.exact { (full(notice.created_at)) } } p { (summary(notice, webhook)) (recover(notice, webhook)) } } }
}

/// A notice's summary, in which the times and the delivery that the notice is about are not just text.
fn summary(notice: &Notice, webhook: WebhookId) -> Markup {
    let (text, is_cut) = text::shown(&notice.summary, MAX_SUMMARY_BYTES);
    let detail = |word: &str| {
        let (name, _) = notice.details.as_object()?.iter().find(|(_, value)| *value == word)?;
        match name.as_str() {
            "failing_since" | "held_since" | "cancelled_after" => from_text(word).map(full),
            "delivery_id" => page(webhook, name, &word.into()).map(|page| html! { a href=(page) { (word) } }),
            _ => None,
        }
    };
    html! {
        bdi {
            @for (place, word) in text.split(' ').enumerate() {
                @let plain = word.trim_end_matches([':', '.', ',']);
                @if place > 0 { " " }
                @if let Some(detail) = detail(plain) { (detail) (word[plain.len()..]) } @else { (word) }
            }
            @if is_cut { "…" }
        }
    }
}

/// A way to recover what was dropped meanwhile, which counts first.
fn recover(notice: &Notice, webhook: WebhookId) -> Markup {
    let from = notice.details["recover"]["body"]["from"].as_str().and_then(from_text);
    html! {
        @if let Some(from) = from {
            " " a href={ (Paths::of_webhook(webhook, "recover")) "?" (query([("from", &*for_input(from)), ("states", "dropped")])) } { "Recover" }
        }
    }
}

/// The class of the colour of a notice's type.
const fn class(notice_type: NoticeType) -> &'static str {
    match notice_type {
        NoticeType::Failing | NoticeType::Expiring => "warn",
        NoticeType::Dropping => "bad",
        NoticeType::Recovered => "good",
        _ => "idle",
    }
}

fn acted(entry: &HistoryEntry, webhook: WebhookId, frame: &Frame) -> Markup {
    html! {
        li {
            p { strong { (shortened(&entry.user)) } " " (action(entry)) " " (relative(entry.created_at, frame.now)) span.exact { (full(entry.created_at)) } }
            (details(&entry.details, webhook))
        }
    }
}

/// An action as the verb of a sentence.
fn action(entry: &HistoryEntry) -> &'static str {
    match entry.action {
        Action::Changed if is_only_switch(&entry.details) => match entry.details["is_active"]["to"].as_bool() {
            Some(false) => "paused the webhook",
            _ => "activated the webhook",
        },
        Action::Created => "registered the webhook",
        Action::Changed => "changed the webhook",
        Action::Deleted => "deleted the webhook",
        Action::Tested => "sent a test",
        Action::Resent => "sent a delivery again",
        Action::Recovered => "began a recovery",
        Action::Stopped => "stopped a recovery",
        Action::Cancelled => "cancelled waiting deliveries",
    }
}

/// Whether a change is a pause or an activation and nothing else.
fn is_only_switch(details: &Value) -> bool {
    details.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("is_active"))
}

/// What an action was about, a line for each member.
fn details(details: &Value, webhook: WebhookId) -> Markup {
    if is_only_switch(details) {
        return html! {};
    }
    let members = details.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null() && *value != "");
    html! {
        dl.details {
            @for (name, value) in members {
                div {
                    dt { (label(name)) }
                    dd { @if let Some(page) = page(webhook, name, value) { a href=(page) { (shown(value)) } } @else if let Some(time) = value.as_str().filter(|_| ["from", "to"].contains(&&**name)).and_then(from_text) { (full(time)) } @else { (shown(value)) } }
                }
            }
        }
    }
}

/// A member's name for people.
fn label(name: &str) -> String {
    match name {
        "url" => "URL".to_owned(),
        "delivery_id" => "Delivery".to_owned(),
        "recovery_id" => "Recovery".to_owned(),
        "is_active" => "Active".to_owned(),
        "header_names" => "Headers".to_owned(),
        other => {
            let mut letters = other.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>().replace('_', " ")
        }
    }
}

/// The page of what a member names.
fn page(webhook: WebhookId, name: &str, value: &Value) -> Option<String> {
    let id = value.as_str()?;
    match name {
        "delivery_id" => Some(Paths::delivery(webhook, id.parse().ok()?)),
        "recovery_id" => Some(Paths::recovery(webhook, id.parse().ok()?)),
        _ => None,
    }
}

fn shown(value: &Value) -> Markup {
    match value {
        Value::String(text) => shortened(text),
        Value::Array(values) => {
            html! { @for (place, value) in values.iter().enumerate() { @if place > 0 { ", " } (shown(value)) } }
        }
        Value::Object(members) if members.contains_key("from") && members.contains_key("to") => {
            html! { (shown(&members["from"])) " → " (shown(&members["to"])) }
        }
        Value::Object(members) if members.contains_key("set") && members.contains_key("removed") => {
            let lists = [("set", &members["set"]), ("removed", &members["removed"])];
            let lists = lists.into_iter().filter(|(_, names)| names.as_array().is_some_and(|names| !names.is_empty()));
            html! { @for (place, (act, names)) in lists.enumerate() { @if place > 0 { "; " } (act) " " (shown(names)) } }
        }
        other => foreign(&other.to_string()),
    }
}
