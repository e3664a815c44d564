//! Checks the body of a webhook's registration (specification, section 2.1) and of its change.

use domain::{EventType, WebhookUrl, find_hidden, is_blank};
use ledger::WebhookChange;
use serde_json::Value;

use super::{
    fields::{Checked, Fields, FromBody, boolean, distinct, event_type, string, violation},
    json::Members,
};
use crate::state::Rules;

/// The members of a registration's body, and of a change's.
const FIELDS: [&str; 3] = ["name", "url", "events"];
const CHANGEABLE: [&str; 4] = ["name", "url", "events", "is_active"];

/// A valid registration.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) url: WebhookUrl,
    pub(crate) events: Vec<EventType>,
}

impl FromBody for Registration {
    fn read(members: &Members, rules: &Rules) -> Checked<Self> {
        let mut fields = Fields::of(members);
        let name = fields.required("name", |value| name(value, rules));
        let url = fields.required("url", |value| url(value, rules));
        let events = fields.required("events", events);
        let read = name.zip(url).zip(events).map(|((name, url), events)| Self { name, url, events });
        fields.finish(&FIELDS, read)
    }
}

/// An absent field stays as it is.
impl FromBody for WebhookChange {
    fn read(members: &Members, rules: &Rules) -> Checked<Self> {
        let mut fields = Fields::of(members);
        let change = Self {
            name: fields.optional("name", |value| name(value, rules)),
            url: fields.optional("url", |value| url(value, rules)).map(|url| url.as_str().to_owned()),
            events: fields.optional("events", events),
            is_active: fields.optional("is_active", |value| boolean("is_active", value)),
        };
        fields.finish(&CHANGEABLE, Some(change))
    }
}

fn name(value: &Value, rules: &Rules) -> Checked<String> {
    let name = string("name", value)?;
    if is_blank(name) {
        return violation("name", "blank", "must not be blank");
    }
    if name.chars().count() > rules.name_chars {
        return violation("name", "too_long", format!("must be at most {} characters long", rules.name_chars));
    }
    if name.chars().any(char::is_control) {
        return violation("name", "control_character", "must not contain control characters, such as line breaks");
    }
    not_hidden("name", name)?;
    Ok(name.to_owned())
}

fn url(value: &Value, rules: &Rules) -> Checked<WebhookUrl> {
    let text = string("url", value)?;
    let url = WebhookUrl::register(text, rules.url_chars, &rules.destinations);
    let url = url.or_else(|wrong| violation("url", wrong.code(), wrong.to_string()))?;
    not_hidden("url", text)?;
    Ok(url)
}

/// Names and URLs are shown to people, in notices as they are.
fn not_hidden(field: &str, text: &str) -> Checked<()> {
    let Some(hidden) = find_hidden(text) else { return Ok(()) };
    let hidden = u32::from(hidden);
    let message = format!("must not contain the character U+{hidden:04X} there: it is invisible or turns the writing");
    violation(field, "hidden_character", message)
}

fn events(value: &Value) -> Checked<Vec<EventType>> {
    distinct("events", value, "event type", "repeated_event_type", event_type)
}

#[cfg(test)]
mod tests;
