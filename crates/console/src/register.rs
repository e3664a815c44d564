//! The registration of a webhook, and its secret.

use ledger::Webhook;
use maud::{Markup, html};
use uuid::Uuid;

use crate::{
    Frame, Paths, WebhookForm,
    layout::{self, copy, token},
    text::foreign,
    webhook::event_types,
};

impl WebhookForm {
    /// The form that registers a webhook. Posted twice, one `form` registers once.
    pub fn registration(&self, frame: &Frame, form: Uuid) -> String {
        let content = html! {
            h1 { "Register a webhook" }
            form.stack method="post" action="/console/register/" {
                (token(frame))
                input type="hidden" name="form" value=(form);
                (self.others())
                (self.fields(&[]))
                div.actions { button.primary { "Register" } a href=(Paths::HOME) { "Cancel" } }
            }
        };
        layout::page(frame, "Register a webhook", &[("Webhooks", Paths::HOME.to_owned())], &content)
    }
}

/// The page after a registration: the only one that shows the secret.
#[derive(Clone, Debug)]
pub struct RegisteredWebhook<'a> {
    /// The webhook.
    pub webhook: &'a Webhook,
    /// Its signing secret.
    pub secret: &'a str,
    /// Receivers' code: the language and the program.
    pub receivers: &'a [(&'a str, &'a str)],
}

impl RegisteredWebhook<'_> {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            h1 { (foreign(&self.webhook.settings.name)) " is registered" }
            p.note { "Three steps remain." }
            section.secret {
                h2 { "1. Keep the signing secret" }
                p { "Your receiver needs it to know that a request comes from this service and was not altered. " strong { "It is shown only now." } " If you lose it, register the webhook again, and delete this one." }
                p.row { code #secret { (self.secret) } (copy("secret", "Copy", "Copy the secret")) }
                p.note { "Never put it into a page, an app or a repository. It holds two keys: " code { "X-Service-Signature" } " is made with the whole text as its key, the headers of Standard Webhooks with the 48 bytes that follow " code { "whsec_" } " in base64." }
            }
            section {
                h2 { "2. Verify each request" }
                p { "Use one of these programs, or its verification function. Each checks the signature and its age, and processes each delivery once." }
                @for (language, code) in self.receivers {
                    details { summary { (language) } pre tabindex="0" { (code) } }
                }
            }
            (self.test(frame))
            p { a.button href=(Paths::webhook(self.webhook.id)) { "Go to the webhook" } }
        };
        layout::page(frame, "Registered", &[("Webhooks", Paths::HOME.to_owned())], &content)
    }

    fn test(&self, frame: &Frame) -> Markup {
        html! {
            section {
                h2 { "3. Send a test" }
                p { "A sample " @if let [only] = &self.webhook.settings.events[..] { "of " code { (only) } } @else { "of the event type that you choose" } " is sent to " span.url { (foreign(&self.webhook.settings.url)) } ", signed like any event." }
                form.row method="post" action=(Paths::of_webhook(self.webhook.id, "test")) data-in-place="test-result" {
                    (token(frame))
                    (event_types(self.webhook))
                    button.primary { "Send a test" }
                }
                div #test-result aria-live="polite" {}
            }
        }
    }
}
