//! Fields of forms, with what the server says of them.

use std::collections::BTreeMap;

use domain::{EventType, catalogue};
use ledger::WebhookSettings;
use maud::{Markup, html};
use serde_json::Value;

use crate::text::foreign;

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// The field. Of an element of a list: with its index.
    pub field: String,
    /// What is wrong, as the end of a sentence that begins with the field.
    pub message: String,
}

impl FieldFault {
    /// The name of the header with this fault, or a word for all of them, and the message.
    fn of_header(&self) -> Option<(&str, &str)> {
        let name = match self.field.strip_prefix(HEADERS)? {
            "" => "Headers",
            rest => rest.strip_prefix('.')?,
        };
        Some((name, &self.message))
    }

    /// What is wrong with a field or one of its elements.
    pub(crate) fn of<'a>(faults: &'a [Self], field: &'a str) -> impl Iterator<Item = &'a str> {
        let is_of = move |fault: &&Self| {
            fault.field == field || fault.field.strip_prefix(field).is_some_and(|rest| rest.starts_with(['[', '.']))
        };
        faults.iter().filter(is_of).map(|fault| fault.message.as_str())
    }
}

/// What a form for a webhook holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookForm {
    /// The texts of each field: none or several of a list.
    pub texts: BTreeMap<String, Vec<String>>,
    /// What is wrong with them.
    pub faults: Vec<FieldFault>,
}

/// The fields, in their order.
const FIELD_NAMES: [&str; 5] = ["name", "description", "url", "events", HEADERS];
const HEADERS: &str = "headers";

impl WebhookForm {
    /// The form of a webhook with these settings. It has not all of them: activity has a form of its own.
    pub fn of(settings: &WebhookSettings) -> Self {
        let members = settings.members().into_iter().filter(|(name, _)| FIELD_NAMES.contains(&name.as_str()));
        let texts = members.filter_map(|(name, value)| match value {
            Value::String(text) => Some((name, vec![text])),
            Value::Array(values) => Some((name, values.iter().filter_map(Value::as_str).map(str::to_owned).collect())),
            _ => None,
        });
        Self { texts: texts.collect(), faults: Vec::new() }
    }

    pub(crate) fn texts_of(&self, field: &str) -> &[String] {
        self.texts.get(field).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn faults_of<'a>(&'a self, field: &'a str) -> impl Iterator<Item = &'a str> {
        FieldFault::of(&self.faults, field)
    }

    /// What is wrong and belongs to none of the fields.
    pub(crate) fn others(&self) -> Markup {
        let is_other = |fault: &&FieldFault| !FIELD_NAMES.iter().any(|field| fault.field.starts_with(field));
        html! { @for fault in self.faults.iter().filter(is_other) { p.fault role="alert" { (fault.field) " " (fault.message) } } }
    }

    /// The fields, for a webhook with these headers of its own.
    pub(crate) fn fields(&self, header_names: &[String]) -> Markup {
        html! {
            (self.text("name", "Name", "For people: say which system receives.", Some("text")))
            (self.text("description", "Description", "Optional. Whom to ask, say, and what the receiver does with the events.", None))
            (self.text("url", "URL", "Events are sent here by POST. It begins with https:// and the internet can reach it.", Some("url")))
            (self.event_types())
            (self.headers(header_names))
        }
    }

    /// The webhook's own headers. Their values are never shown.
    fn headers(&self, names: &[String]) -> Markup {
        let faults: Vec<_> = self.faults.iter().filter_map(|fault| fault.of_header()).collect();
        let invalid = (!faults.is_empty()).then_some("true");
        html! {
            details.field open[!faults.is_empty()] {
                summary { "Advanced" }
                label for=(HEADERS) { "Headers" }
                p.hint #headers-hint {
                    "Optional. Each request carries them, for example for a gateway in front of the receiver. A line for each: "
                    code { "Authorization: Bearer …" } ". Values are kept sealed and never shown."
                    @if !names.is_empty() { " A line with the name of a present header replaces its value. Another host in the URL needs all of them again." }
                }
                @if !names.is_empty() {
                    fieldset.events {
                        legend { "Present headers" }
                        @for name in names {
                            div.choice { label { input type="checkbox" name=(HEADERS) value={ (name) ":" }; span { "Remove " code { (foreign(name)) } } } }
                        }
                    }
                }
                textarea id=(HEADERS) name=(HEADERS) rows="3" autocomplete="off" spellcheck="false" aria-describedby="headers-hint headers-fault"
                    aria-invalid=[invalid] autofocus[self.first_faulty() == Some(HEADERS)] {}
                p.fault #headers-fault { @for (header, message) in faults { (foreign(header)) " " (message) ". " } }
            }
        }
    }

    /// The field to look at first.
    fn first_faulty(&self) -> Option<&'static str> {
        FIELD_NAMES.into_iter().find(|field| self.faults_of(field).next().is_some())
    }

    /// A text of one line, of the kind that browsers know. Without a kind: one of several lines, which may be empty.
    pub(crate) fn text(&self, field: &str, label: &str, hint: &str, kind: Option<&str>) -> Markup {
        let faults: Vec<_> = self.faults_of(field).collect();
        let value = self.texts_of(field).first().map_or("", String::as_str);
        let (described, invalid) = (format!("{field}-hint {field}-fault"), (!faults.is_empty()).then_some("true"));
        let is_first = self.first_faulty() == Some(field);
        html! {
            div.field {
                label for=(field) { (label) }
                p.hint #{ (field) "-hint" } { (hint) }
                @if let Some(kind) = kind {
                    input type=(kind) id=(field) name=(field) value=(value) required autocomplete="off" spellcheck="false"
                        aria-describedby=(described) aria-invalid=[invalid] autofocus[is_first];
                } @else {
                    textarea id=(field) name=(field) rows="3" aria-describedby=(described) aria-invalid=[invalid] autofocus[is_first] { (value) }
                }
                p.fault #{ (field) "-fault" } { @for fault in &faults { (label) " " (fault) ". " } }
            }
        }
    }

    fn event_types(&self) -> Markup {
        let faults: Vec<_> = self.faults_of("events").collect();
        html! {
            fieldset.field.events aria-describedby="events-fault" {
                legend { "Events" }
                p.hint { "Choose at least one. Each event becomes a request of its own." }
                p.fault #events-fault { @for fault in &faults { "Events " (fault) ". " } }
                @for (place, event_type) in EventType::ALL.into_iter().enumerate() {
                    div.choice {
                        label {
                            input type="checkbox" name="events" autofocus[place == 0 && self.first_faulty() == Some("events")] value=(event_type.as_str()) checked[self.texts_of("events").iter().any(|name| name == event_type.as_str())];
                            span { code { (event_type) } " " span.hint { (first_sentence(catalogue::description(event_type))) } }
                        }
                        details { summary aria-label={ "Sample of " (event_type) } { "Sample" } pre tabindex="0" { (catalogue::sample(event_type)) } }
                    }
                }
            }
        }
    }
}

/// A text up to its first full stop.
pub(crate) fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stands_beside_its_field() {
        let fault = |field: &str, message: &str| FieldFault { field: field.to_owned(), message: message.to_owned() };
        let form = WebhookForm {
            texts: BTreeMap::from(
                [("name", "<b>\"x\""), ("events", "quote.closed")].map(|(name, text)| (name.into(), vec![text.into()])),
            ),
            faults: vec![
                fault("name", "is <bad>"),
                fault("events[1]", "is unknown"),
                fault("headers.X-A", "must have a value"),
                fault("", "the body is odd"),
            ],
        };
        let fields = form.fields(&[]).into_string();
        assert!(fields.contains(r#"value="&lt;b&gt;&quot;x&quot;""#), "{fields}");
        assert!(fields.contains(r#"id="name-fault">Name is &lt;bad&gt;. </p>"#), "{fields}");
        assert!(fields.contains(r#"id="events-fault">Events is unknown. </p>"#), "{fields}");
        assert!(fields.contains("<bdi>X-A</bdi> must have a value. </p>"), "{fields}");
        assert!(fields.contains(r#"value="quote.closed" checked"#), "{fields}");
        assert_eq!(fields.matches(" checked").count(), 1);
        assert!(form.others().into_string().contains("the body is odd"));
    }
}
