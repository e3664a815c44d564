//! Keys by which programs call the API: the list, the form that creates one, and the only page that shows one.

use ledger::ApiKey;
use maud::{Markup, html};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    Frame, Paths, WebhookForm,
    layout::{self, copy, token},
    text::{foreign, sentence, shortened},
    times::{full, relative, zone},
};

/// The list of keys, and the form that creates one.
#[derive(Clone, Debug)]
pub struct KeyList {
    /// All keys of the tenant, in the order of their creation.
    pub keys: Vec<ApiKey>,
    /// The fields of the form: `name` and `expires_at`.
    pub form: WebhookForm,
    /// The form's number. Posted twice, one form creates one key.
    pub number: Uuid,
}

impl KeyList {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            div.title { h1 { "Keys for programs" } }
            p.note { "A program that sends a key can use the " a href="/api/v1/docs/" { "API" } " as you can: it sees, registers, changes and deletes webhooks. It opens no page of this console, and makes no keys." }
            @if self.keys.is_empty() { p.nothing { "No keys yet." } }
            ol.entries { @for key in &self.keys { (entry(key, frame)) } }
            section {
                h2 { "Create a key" }
                @if self.keys.len() < usize::from(ApiKey::MAX_PER_TENANT) { (self.create(frame)) }
                @else { p.note { "Your organization has " (ApiKey::MAX_PER_TENANT) " keys, the maximum. Revoke a key that no program uses first." } }
            }
        };
        layout::page(frame, "Keys", &[("Webhooks", Paths::HOME.to_owned())], &content)
    }

    fn create(&self, frame: &Frame) -> Markup {
        let expiry = self.form.texts_of("expires_at").first().map_or("", String::as_str);
        let faults: Vec<_> = self.form.faults_of("expires_at").collect();
        html! {
            form.stack method="post" action=(Paths::KEYS) {
                (token(frame))
                input type="hidden" name="form" value=(self.number);
                (self.form.text("name", "Name", "For people: which program uses the key.", Some("text")))
                div.field {
                    label for="expires_at" { "Expires (" (zone()) ")" }
                    p.hint #expires_at-hint { "Empty: never. To renew a key, create another one first." }
                    input type="datetime-local" autocomplete="off" id="expires_at" name="expires_at" value=(expiry)
                        aria-describedby="expires_at-hint expires_at-fault" aria-invalid=[(!faults.is_empty()).then_some("true")];
                    p.fault #expires_at-fault { @for fault in &faults { (sentence(fault)) " " } }
                }
                div.actions { button.primary { "Create the key" } }
            }
        }
    }
}

fn entry(key: &ApiKey, frame: &Frame) -> Markup {
    let is_expired = key.expires_at.is_some_and(|at| at <= frame.now);
    html! {
        li.act {
            div {
                p { strong { (shortened(&key.name)) } @if is_expired { " " span.badge.bad { "expired" } } }
                p { "Created by " (shortened(&key.created_by)) " " (relative(key.created_at, frame.now)) " " span.exact { (full(key.created_at)) } }
                p { (expiry(key.expires_at, frame)) " " (last_use(key)) }
            }
            form.confirm method="post" action="/console/keys/revoke/" {
                (token(frame))
                input type="hidden" name="key" value=(key.id);
                label { input type="checkbox" name="confirmed" value="yes" required; "Yes, revoke this key" }
                button.danger { "Revoke" }
            }
        }
    }
}

fn expiry(at: Option<OffsetDateTime>, frame: &Frame) -> Markup {
    html! {
        @match at {
            None => "Never expires.",
            Some(at) if at <= frame.now => { "Expired " (relative(at, frame.now)) "." }
            Some(at) => { "Expires " (relative(at, frame.now)) "." }
        }
    }
}

fn last_use(key: &ApiKey) -> Markup {
    html! { @if let Some(day) = key.last_used_on { "Last used on " (day) " (UTC)." } @else { "Never used." } }
}

/// The page after a creation: the only one that shows the key.
#[derive(Clone, Debug)]
pub struct CreatedKey<'a> {
    /// The key.
    pub key: &'a ApiKey,
    /// The text that a program sends.
    pub text: &'a str,
}

impl CreatedKey<'_> {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            h1 { "The key " (foreign(&self.key.name)) " is created" }
            section.secret {
                h2 { "Keep the key" }
                p { strong { "It is shown only now." } " If you lose it, revoke it and create another one." }
                p.row { code #secret { (self.text) } (copy("secret", "Copy", "Copy the key")) }
                p.note { "The program sends it with each request, as the header " code { "Authorization: Bearer wk_…" } ". Who has it can do what you can do with webhooks: never put it into a page, an app or a repository." }
            }
            p { a.button href=(Paths::KEYS) { "Go to the keys" } }
        };
        layout::page(frame, "Key created", &[("Keys", Paths::KEYS.to_owned())], &content)
    }
}

#[cfg(test)]
mod tests {
    use domain::KeyId;
    use time::{Duration, macros::date};

    use super::*;
    use crate::health::tests::{NOW, frame};

    fn key(name: &str) -> ApiKey {
        ApiKey {
            id: KeyId::from(Uuid::from_u128(7)),
            tenant: Uuid::nil().into(),
            name: name.to_owned(),
            created_by: "ann".to_owned(),
            created_at: NOW - Duration::days(3),
            expires_at: None,
            last_used_on: None,
        }
    }

    fn page(keys: Vec<ApiKey>) -> String {
        KeyList { keys, form: WebhookForm::default(), number: Uuid::nil() }.render(&frame("", ""))
    }

    #[test]
    fn the_list_says_when_a_key_expires_and_when_it_was_used_last() {
        let used = ApiKey { last_used_on: Some(date!(2026 - 02 - 28)), ..key("a") };
        for (key, words) in [
            (key("<b>"), "Never expires. Never used."),
            (ApiKey { expires_at: Some(NOW + Duration::days(3)), ..used.clone() }, "in 3 days"),
            (used, "Last used on 2026-02-28 (UTC)."),
        ] {
            let page = page(vec![key]);
            assert!(page.contains(words) && !page.contains(">expired<"), "{words}: {page}");
        }
        let expired = ApiKey { expires_at: Some(NOW), ..key("a") };
        assert!(page(vec![expired]).contains(">expired<"));
        assert!(page(vec![key("<b>")]).contains("&lt;b&gt;"));
    }

    #[test]
    fn no_form_creates_a_key_beyond_the_maximum_and_the_largest_page_is_at_most_100_kb() {
        for c in ["\"", "\u{61c}", "漢"] {
            let long = ApiKey { created_by: c.repeat(255), expires_at: Some(NOW), ..key(&c.repeat(255)) };
            let text = page(vec![long; ApiKey::MAX_PER_TENANT.into()]);
            assert!(text.len() < 100_000, "{} bytes", text.len());
            assert!(text.contains("the maximum") && !text.contains("Create the key"), "{text}");
        }
        assert!(page(Vec::new()).contains("Create the key"));
    }
}
