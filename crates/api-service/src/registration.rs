//! What an administrator asks for when registering a webhook (specification, section 2.1).

use std::collections::HashSet;

use domain::{AddressPolicy, EventType, WebhookUrl};
use serde_json::Value;

use crate::{fault::Fault, json::Members};

/// The members of the body.
const FIELDS: [&str; 3] = ["name", "url", "events"];
/// More than these nobody reads.
const MOST_FAULTS: usize = 100;

/// What is configurable about the fields.
pub(crate) struct Rules {
    pub(crate) name_chars: usize,
    pub(crate) url_chars: usize,
    pub(crate) addresses: AddressPolicy,
}

/// A good registration.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) url: WebhookUrl,
    pub(crate) events: Vec<EventType>,
}

/// A field's value, or all that is wrong with it.
type Checked<T> = Result<T, Vec<Fault>>;

impl Registration {
    /// Checks every field; all faulty ones are reported at once.
    pub(crate) fn read(Members(members): &Members, rules: &Rules) -> Checked<Self> {
        let mut faults = Vec::new();
        let name = keep(&mut faults, required(members, "name").and_then(|value| name(value, rules)));
        let url = keep(&mut faults, required(members, "url").and_then(|value| url(value, rules)));
        let events = keep(&mut faults, required(members, "events").and_then(events));
        faults.extend(unknown(members));
        faults.truncate(MOST_FAULTS);
        match (name, url, events) {
            (Some(name), Some(url), Some(events)) if faults.is_empty() => Ok(Self { name, url, events }),
            _ => Err(faults),
        }
    }
}

fn keep<T>(faults: &mut Vec<Fault>, checked: Checked<T>) -> Option<T> {
    checked.map_err(|faulty| faults.extend(faulty)).ok()
}

fn fault<T>(field: &str, code: &'static str, message: impl Into<String>) -> Checked<T> {
    Err(vec![Fault::new(field, code, message)])
}

fn required<'a>(members: &'a [(String, Value)], field: &'static str) -> Checked<&'a Value> {
    let mut values = members.iter().filter(|(name, _)| name == field).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => fault(field, "required", "is required"),
        (Some(_), Some(_)) => fault(field, "repeated_field", "is given more than once"),
    }
}

fn unknown(members: &[(String, Value)]) -> impl Iterator<Item = Fault> {
    let mut seen = HashSet::from(FIELDS);
    let names = members.iter().map(|(name, _)| name).filter(move |name| seen.insert(name));
    names.map(|name| Fault::new(name, "unknown_field", "is unknown here; known are name, url and events"))
}

fn string<'a>(field: &str, value: &'a Value) -> Checked<&'a str> {
    value.as_str().map_or_else(|| fault(field, "wrong_type", format!("must be a string, not {}", kind(value))), Ok)
}

fn name(value: &Value, rules: &Rules) -> Checked<String> {
    let name = string("name", value)?;
    if name.trim().is_empty() {
        return fault("name", "blank", "must not be blank");
    }
    if name.chars().count() > rules.name_chars {
        return fault("name", "too_long", format!("must be at most {} characters long", rules.name_chars));
    }
    if name.chars().any(char::is_control) {
        return fault("name", "control_character", "must not contain control characters, such as line breaks");
    }
    Ok(name.to_owned())
}

fn url(value: &Value, rules: &Rules) -> Checked<WebhookUrl> {
    let url = WebhookUrl::parse(string("url", value)?, rules.url_chars, &rules.addresses);
    url.or_else(|wrong| fault("url", wrong.code(), wrong.to_string()))
}

fn events(value: &Value) -> Checked<Vec<EventType>> {
    let Some(entries) = value.as_array() else {
        return fault("events", "wrong_type", format!("must be an array of event types, not {}", kind(value)));
    };
    if entries.is_empty() {
        return fault("events", "empty", "must list at least one event type");
    }
    let mut events = Vec::new();
    let mut faults = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if let Some(event) = keep(&mut faults, event(index, entry, &events)) {
            events.push(event);
        }
    }
    if faults.is_empty() { Ok(events) } else { Err(faults) }
}

fn event(index: usize, entry: &Value, before: &[EventType]) -> Checked<EventType> {
    let field = format!("events[{index}]");
    let event = string(&field, entry)?.parse::<EventType>();
    match event {
        Err(unknown) => fault(&field, "unknown_event_type", unknown.to_string()),
        Ok(event) if before.contains(&event) => {
            fault(&field, "repeated_event_type", format!("repeats the event type {event}"))
        }
        Ok(event) => Ok(event),
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
