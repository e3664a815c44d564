//! Checks the settings of a webhook (specification, section 2.1) and its headers: of a registration and of a change.

use domain::{EventType, HeaderChange, ReceiverHeaders, WebhookId, WebhookUrl, find_hidden, is_blank};
use ledger::WebhookSettings;
use serde_json::Value;

use crate::{
    http::{
        Checked, Fields, FromBody, Given, Members, Need, Source,
        fields::{boolean, distinct, event_type, string, violation},
    },
    state::Rules,
    webhooks::headers,
};

/// The maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_000;

/// The maximum length of an external id, in characters.
const MAX_EXTERNAL_ID_CHARS: usize = 255;

/// Members of a webhook that no change changes, so that the answer of a GET is a change as well.
const READ_ONLY: [&str; 11] = [
    "created_at",
    "updated_at",
    "deleted_at",
    "last_success_at",
    "failure_count",
    "failing_since",
    "last_failure",
    "next_attempt_at",
    "deliveries",
    "is_cancelling",
    "is_queued",
];

/// A registration.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) settings: WebhookSettings,
    pub(crate) headers: ReceiverHeaders,
}

impl FromBody for Registration {
    fn read(members: Members, rules: &Rules) -> Checked<Self> {
        new(&members, |fields, settings| {
            read(fields, Need::Required, rules, settings);
            read_for_programs(fields, settings);
        })
    }
}

/// The members of a change. They have no violation, whatever the settings are that they change.
pub(crate) struct Change(pub(crate) Members);

impl FromBody for Change {
    const MEDIA_TYPES: &[&str] = &["application/json", "application/merge-patch+json"];

    fn read(members: Members, rules: &Rules) -> Checked<Self> {
        change(&members, rules, None, &mut WebhookSettings::default()).map(|_| Self(members))
    }
}

/// Reads settings and headers of a new webhook from a form.
pub(crate) fn registration(form: &dyn Source, rules: &Rules) -> Checked<Registration> {
    new(form, |fields, settings| read(fields, Need::Required, rules, settings))
}

fn new(source: &dyn Source, read: impl FnOnce(&mut Fields<'_>, &mut WebhookSettings)) -> Checked<Registration> {
    let settings = WebhookSettings { is_active: true, ..WebhookSettings::default() };
    let mut new = Registration { settings, headers: ReceiverHeaders::default() };
    Fields::check(source, |fields| {
        read(fields, &mut new.settings);
        fields.set(&mut new.headers, headers::FIELD, Need::Optional, headers::registration);
        Some(())
    })?;
    Ok(new)
}

/// Changes the settings whose fields are given. If the webhook's id is given, too, it has to be `id`. Returns the change of
/// headers.
pub(crate) fn change(
    source: &dyn Source,
    rules: &Rules,
    id: Option<WebhookId>,
    settings: &mut WebhookSettings,
) -> Checked<HeaderChange> {
    let mut change = HeaderChange::default();
    Fields::check(source, |fields| {
        read(fields, Need::Optional, rules, settings);
        read_for_programs(fields, settings);
        fields.set(&mut change, headers::FIELD, Need::Optional, headers::change);
        fields.optional("id", |field, given| match id.map(|id| id.to_string()) {
            Some(id) if string(field, given)? != id => {
                violation(field, "other_webhook", format!("must be the id in the path, {id}, or be left out"))
            }
            _ => Ok(()),
        });
        fields.ignore(&READ_ONLY);
        Some(())
    })?;
    Ok(change)
}

/// Reads the settings that no form has.
fn read_for_programs(fields: &mut Fields<'_>, settings: &mut WebhookSettings) {
    fields.set(&mut settings.external_id, "external_id", Need::Optional, external_id);
    fields.set(&mut settings.is_active, "is_active", Need::Optional, boolean);
}

fn read(fields: &mut Fields<'_>, need: Need, rules: &Rules, settings: &mut WebhookSettings) {
    fields.set(&mut settings.name, "name", need, |field, given| name(field, given, rules));
    fields.set(&mut settings.description, "description", Need::Optional, description);
    fields.set(&mut settings.url, "url", need, |field, given| url(field, given, rules));
    fields.set(&mut settings.events, "events", need, events);
}

fn external_id(field: &str, given: &Given<'_>) -> Checked<Option<String>> {
    match given {
        Given::Json(Value::Null) => Ok(None),
        given => one_line(field, given, MAX_EXTERNAL_ID_CHARS).map(Some),
    }
}

/// Reads a name for people.
pub(crate) fn name(field: &str, given: &Given<'_>, rules: &Rules) -> Checked<String> {
    one_line(field, given, rules.name_chars)
}

fn one_line(field: &str, given: &Given<'_>, most: usize) -> Checked<String> {
    let name = string(field, given)?;
    if is_blank(name) {
        return violation(field, "blank", "must not be blank");
    }
    not_longer(field, name, most)?;
    if name.chars().any(char::is_control) {
        return violation(field, "control_character", "must not contain control characters, such as line breaks");
    }
    not_hidden(field, name)?;
    Ok(name.trim().to_owned())
}

fn description(field: &str, given: &Given<'_>) -> Checked<String> {
    // A form of the console has these line breaks too, so it shows no edit where there is none.
    let text = string(field, given)?.replace("\r\n", "\n").replace('\r', "\n");
    not_longer(field, &text, MAX_DESCRIPTION_CHARS)?;
    if text.chars().any(|c| c.is_control() && !"\n\t".contains(c)) {
        return violation(field, "control_character", "must not contain control characters but line breaks and tabs");
    }
    not_hidden(field, &text)?;
    Ok(text)
}

fn not_longer(field: &str, text: &str, most: usize) -> Checked<()> {
    match text.chars().count() > most {
        true => violation(field, "too_long", format!("must be at most {most} characters long")),
        false => Ok(()),
    }
}

fn url(field: &str, given: &Given<'_>, rules: &Rules) -> Checked<String> {
    let text = string(field, given)?;
    let url = WebhookUrl::register(text, rules.url_chars, &rules.address_policy);
    url.or_else(|wrong| violation(field, wrong.code(), wrong.to_string()))?;
    not_hidden(field, text)?;
    Ok(text.to_owned())
}

/// Names, descriptions and URLs are shown to people, in notices as they are.
fn not_hidden(field: &str, text: &str) -> Checked<()> {
    let Some((place, hidden)) = find_hidden(text) else { return Ok(()) };
    let (place, hidden) = (place + 1, u32::from(hidden));
    let message = format!(
        "must not contain U+{hidden:04X} (character {place}), which is invisible there or turns the direction of writing: \
         delete it, or type the text again"
    );
    violation(field, "hidden_character", message)
}

fn events(field: &str, given: &Given<'_>) -> Checked<Vec<EventType>> {
    distinct(field, given, "event type", "repeated_event_type", event_type)
}

#[cfg(test)]
mod tests;
