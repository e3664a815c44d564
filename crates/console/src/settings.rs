//! A webhook's settings, and what ends it.

use ledger::{Backlog, Webhook, WebhookSettings};
use maud::{Markup, html};
use serde_json::json;

use crate::{
    Frame, Paths, Tab, WebhookForm, WebhookFrame,
    layout::{copy, token},
    text::bounded,
    times::full,
};

/// The page.
#[derive(Clone, Debug)]
pub struct SettingsPage {
    /// The webhook.
    pub webhook: Webhook,
    /// The form's fields.
    pub form: WebhookForm,
    /// The settings when the form was first shown. Only what differs from it is changed, so that nobody undoes
    /// what somebody else has changed meanwhile.
    pub shown: WebhookSettings,
    /// How long the log is kept, in days.
    pub kept_days: u64,
}

impl SettingsPage {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let webhook = &self.webhook;
        let content = html! {
            section {
                h2 { "Name, description, URL, events and headers" }
                form.stack method="post" action=(Paths::of_webhook(webhook.id, "settings")) {
                    (token(frame))
                    input type="hidden" name="shown" value=(json!(self.shown));
                    (self.form.others())
                    (self.form.fields(&webhook.header_names))
                    div.actions { button.primary { "Save" } }
                }
            }
            (self.cancel(frame))
            (self.delete(frame))
            section {
                h2 { "About" }
                dl.facts {
                    div { dt { "Webhook id" } dd { code #webhook-id { (webhook.id) } " " (copy("webhook-id", "Copy", "Copy the webhook id")) } }
                    div { dt { "Registered" } dd { (full(webhook.created_at)) } }
                    div { dt { "Last changed" } dd { (full(webhook.updated_at)) } }
                }
            }
        };
        WebhookFrame::Live(Box::new(webhook.clone())).page(frame, Tab::Settings, &content)
    }

    /// What waits, as the beginning of a sentence that ends with what becomes of it.
    fn waiting(&self) -> Option<String> {
        let waiting = self.webhook.backlog.waiting;
        let verb = if waiting == 1 { "is" } else { "are" };
        let words = bounded(waiting, Backlog::MAX_COUNT, "waiting delivery", "waiting deliveries");
        (waiting > 0).then(|| format!("{words} {verb}"))
    }

    fn cancel(&self, frame: &Frame) -> Markup {
        let waiting = self.waiting();
        let confirm =
            if self.webhook.backlog.waiting == 0 { "Yes, cancel waiting deliveries" } else { "Yes, cancel them" };
        html! {
            section.act {
                div { h2 { "Cancel waiting deliveries" } p { @if let Some(waiting) = &waiting { (waiting) " cancelled, and so are deliveries that have not been attempted yet." } @else { "No retry is waiting at the moment. Deliveries that have not been attempted yet are cancelled." } " Each can be sent again from the log. Later events are delivered as usual." } }
                @if self.webhook.backlog.is_cancelling {
                    p.note { "Waiting deliveries are being cancelled." }
                } @else {
                    (confirmed(frame, &Paths::of_webhook(self.webhook.id, "cancel"), confirm, "Cancel waiting deliveries"))
                }
            }
        }
    }

    fn delete(&self, frame: &Frame) -> Markup {
        html! {
            section.act {
                div { h2 { "Delete" } p { "This cannot be undone. Nothing more is sent" @if let Some(waiting) = self.waiting() { ", " (waiting) " cancelled" } ", and the service no longer signs with the secret: remove it from the receiver. The log can be read for " (self.kept_days) " days." } }
                (confirmed(frame, &Paths::of_webhook(self.webhook.id, "delete"), "Yes, delete this webhook permanently", "Delete"))
            }
        }
    }
}

/// A form that has to be confirmed by a mark.
fn confirmed(frame: &Frame, action: &str, confirm: &str, label: &str) -> Markup {
    html! {
        form.confirm method="post" action=(action) {
            (token(frame))
            label { input type="checkbox" name="confirmed" value="yes" required; (confirm) }
            button.danger { (label) }
        }
    }
}
