//! What the pages of one webhook share: its name, its health and its tabs.

use domain::WebhookId;
use ledger::{DeletedWebhook, Webhook};
use maud::{Markup, html};
use strum::IntoStaticStr;

use crate::{
    Done, Frame, Health, Paths, health,
    layout::{self, Crumb, button, copy, token},
    text::foreign,
    times::{full, relative},
};

/// A page of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Tab {
    /// Health, charts and the log.
    Deliveries,
    /// Recovering what was dropped or skipped.
    Recover,
    /// Name, URL, events, pause and deletion.
    Settings,
    /// Changes of the webhook, and notices about it.
    History,
}

impl Tab {
    const ALL: [Self; 4] = [Self::Deliveries, Self::Recover, Self::Settings, Self::History];

    fn name(self) -> &'static str {
        self.into()
    }

    fn path(self, id: WebhookId) -> String {
        match self {
            Self::Deliveries => Paths::webhook(id),
            Self::Recover => Paths::of_webhook(id, "recover"),
            Self::Settings => Paths::of_webhook(id, "settings"),
            Self::History => Paths::of_webhook(id, "history"),
        }
    }
}

/// The webhook that a page is about.
#[derive(Clone, Debug)]
pub enum WebhookFrame {
    /// It exists.
    Live(Box<Webhook>),
    /// It was deleted, and its log is still there.
    Deleted(DeletedWebhook),
    /// It was deleted, and only its history is still there.
    Expired(DeletedWebhook),
}

impl WebhookFrame {
    /// Its id.
    pub fn id(&self) -> WebhookId {
        match self {
            Self::Live(webhook) => webhook.id,
            Self::Deleted(webhook) | Self::Expired(webhook) => webhook.id,
        }
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Live(webhook) => &webhook.settings.name,
            Self::Deleted(webhook) | Self::Expired(webhook) => name_of(webhook),
        }
    }

    /// Returns true if nothing is sent until the webhook is active again.
    pub(crate) const fn is_paused(&self) -> bool {
        matches!(self, Self::Live(webhook) if !webhook.settings.is_active)
    }

    pub(crate) fn crumbs(&self) -> Vec<Crumb<'_>> {
        vec![("Webhooks", Paths::HOME.to_owned()), (self.name(), Paths::webhook(self.id()))]
    }

    /// A page of the webhook.
    pub(crate) fn page(&self, frame: &Frame, tab: Tab, content: &Markup) -> String {
        let content = html! {
            (self.head(frame))
            nav.tabs aria-label="Webhook" {
                @for one in self.tabs() {
                    a href=(one.path(self.id())) aria-current=[(one == tab).then_some("page")] { (one.name()) }
                }
            }
            (content)
        };
        let title = format!("{}: {}", self.name(), tab.name());
        layout::page(frame, &title, &[("Webhooks", Paths::HOME.to_owned())], &content)
    }

    fn tabs(&self) -> impl Iterator<Item = Tab> {
        let has = move |tab: &Tab| match self {
            Self::Live(_) => true,
            Self::Deleted(_) => matches!(tab, Tab::Deliveries | Tab::History),
            Self::Expired(_) => *tab == Tab::History,
        };
        Tab::ALL.into_iter().filter(has)
    }

    fn head(&self, frame: &Frame) -> Markup {
        match self {
            Self::Live(webhook) => live(webhook, frame),
            Self::Deleted(webhook) => gone(webhook, frame, "Its log and its history can be read until they expire."),
            Self::Expired(webhook) => {
                gone(webhook, frame, "Its log has expired. Its history can be read until it expires.")
            }
        }
    }
}

/// The name of a deleted webhook for people.
pub(crate) const fn name_of(webhook: &DeletedWebhook) -> &str {
    if webhook.settings.name.is_empty() { "Deleted webhook" } else { webhook.settings.name.as_str() }
}

fn gone(webhook: &DeletedWebhook, frame: &Frame, left: &str) -> Markup {
    html! {
        div.title { div { h1 { (foreign(name_of(webhook))) } p.url { (foreign(&webhook.settings.url)) } } }
        div.banner.idle #health data-live="" {
            p {
                "Deleted by " (foreign(&webhook.user)) " " (relative(webhook.deleted_at, frame.now))
                span.exact { (full(webhook.deleted_at)) } ". Nothing more is sent. " (left)
            }
        }
    }
}

fn live(webhook: &Webhook, frame: &Frame) -> Markup {
    let id = webhook.id;
    html! {
        div.title {
            div {
                h1 { (foreign(&webhook.settings.name)) }
                p.url { span #address { (foreign(&webhook.settings.url)) } " " (copy("address", "Copy", "Copy the URL")) }
                @if !webhook.settings.description.is_empty() { p.note.lines { (foreign(&webhook.settings.description)) } }
            }
            div.actions {
                @if webhook.settings.is_active {
                    form.row method="post" action=(Paths::of_webhook(id, "test")) { (token(frame)) (event_types(webhook)) button { "Send a test" } }
                    form method="post" action=(Paths::of_webhook(id, "pause")) {
                        (token(frame))
                        button title="Nothing is sent while the webhook is paused. Waiting deliveries are kept. New events are skipped: a recovery sends them later." { "Pause" }
                    }
                } @else {
                    (button(frame, &Paths::of_webhook(id, "activate"), "Activate", "primary"))
                }
            }
        }
        div.banner.(Health::of(webhook).class()) #health data-live="" {
            p { (health::words(webhook, frame.now)) }
            (advice(webhook, frame.done))
        }
    }
}

/// The choice of a test's event type, where there is one.
pub(crate) fn event_types(webhook: &Webhook) -> Markup {
    html! {
        @if webhook.settings.events.len() > 1 {
            select name="event_type" aria-label="Event type of the test" {
                @for event_type in &webhook.settings.events { option value=(event_type.as_str()) { (event_type) } }
            }
        }
    }
}

/// What an administrator can do about it.
fn advice(webhook: &Webhook, done: Option<Done>) -> Markup {
    let recover = html! {
        @match webhook.backlog.recovery {
            Some(recovery) => a href=(Paths::recovery(webhook.id, recovery)) { "See the recovery's progress" },
            None => a href=(Paths::of_webhook(webhook.id, "recover")) { "Recover them" },
        }
    };
    let log = |state: &str| format!("{}?state={state}#log", Paths::webhook(webhook.id));
    let backlog = webhook.backlog;
    let is_lost = backlog.dropped + backlog.skipped > 0;
    html! {
        @match Health::of(webhook) {
            Health::Failing => {
                p.next { "Fix the receiver. The service then sends the waiting deliveries automatically." }
                @if backlog.waiting > 0 { p.links { a href=(log("retrying")) { "See retried deliveries" } } }
            }
            Health::Dropping => {
                p.next { "Fix the receiver and send a test. The service then sends the waiting deliveries automatically. Recover the dropped ones once the test has succeeded: only a delivery of an event ends the failure." }
                p.links {
                    a href=(log("dropped")) { "See dropped deliveries" } " " (recover)
                    @if backlog.waiting > 0 { " " a href=(log("retrying")) { "See retried deliveries" } }
                }
            }
            Health::Recoverable => p.links { (recover) },
            Health::Paused if is_lost && done.is_none() && backlog.recovery.is_none() => {
                p.next { "Activate the webhook before you recover lost deliveries: a paused webhook sends nothing." }
                p.links { (recover) }
            }
            Health::Untried if backlog.waiting == 0 => p.next { "Send a test to see how the receiver answers." },
            _ if backlog.recovery.is_some() => p.links { (recover) },
            _ => {}
        }
    }
}
