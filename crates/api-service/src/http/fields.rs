//! Checks of a call's fields: of the members of a JSON body, and of the fields of a form.

use std::{borrow::Cow, collections::HashSet, fmt::Display};

use domain::{EventType, Timestamp};
use serde_json::Value;

use super::{
    json::{Members, Need},
    violation::Violation,
};

/// A checked value, or all its violations.
pub(crate) type Checked<T> = Result<T, Vec<Violation>>;

/// The value of a field.
#[derive(Clone, Debug)]
pub(crate) enum Given<'a> {
    Json(&'a Value),
    /// The texts that a form has for the field: none or several for a list.
    Form(Vec<&'a str>),
}

/// The fields that a call is given.
pub(crate) trait Source {
    /// The value of a field. `None` if it is absent.
    fn get(&self, field: &str) -> Checked<Option<Given<'_>>>;

    /// The names of all fields, if unknown ones are violations.
    fn names(&self) -> Vec<&str> {
        Vec::new()
    }
}

impl Source for Members {
    fn get(&self, field: &str) -> Checked<Option<Given<'_>>> {
        let mut values = self.0.iter().filter(|(name, _)| name == field).map(|(_, value)| Given::Json(value));
        match (values.next(), values.next()) {
            (Some(_), Some(_)) => violation(field, "repeated_field", "is given more than once"),
            (value, _) => Ok(value),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Reads a call's fields, and collects the violations, so that all are reported at once.
pub(crate) struct Fields<'a> {
    source: &'a dyn Source,
    known: Vec<&'static str>,
    ignored: &'static [&'static str],
    violations: Vec<Violation>,
}

impl<'a> Fields<'a> {
    /// Returns what `read` makes of the fields if there is no violation. A field that it does not read is one.
    pub(crate) fn check<T>(source: &'a dyn Source, read: impl FnOnce(&mut Self) -> Option<T>) -> Checked<T> {
        let mut fields = Self { source, known: Vec::new(), ignored: &[], violations: Vec::new() };
        let read = read(&mut fields);
        let mut names = source.names();
        names.retain(|name| !fields.ignored.contains(name));
        fields.violations.extend(unknown(names, &fields.known));
        match read {
            Some(read) if fields.violations.is_empty() => Ok(read),
            _ => Err(fields.violations),
        }
    }

    /// Reads a field that must be present. `None` when it has a violation.
    pub(crate) fn required<T>(
        &mut self,
        field: &'static str,
        check: impl FnOnce(&str, &Given<'a>) -> Checked<T>,
    ) -> Option<T> {
        let given =
            self.get(field).and_then(|given| given.map_or_else(|| violation(field, "required", "is required"), Ok));
        keep(&mut self.violations, given.and_then(|given| check(field, &given)))
    }

    /// Reads a field that may be absent. `None` when it is absent or has a violation.
    pub(crate) fn optional<T>(
        &mut self,
        field: &'static str,
        check: impl FnOnce(&str, &Given<'a>) -> Checked<T>,
    ) -> Option<T> {
        let value = self.get(field).and_then(|given| given.map(|given| check(field, &given)).transpose());
        keep(&mut self.violations, value).flatten()
    }

    /// Reads a field into its place, which stays as it is when the field is absent or has a violation.
    pub(crate) fn set<T>(
        &mut self,
        place: &mut T,
        field: &'static str,
        need: Need,
        check: impl FnOnce(&str, &Given<'a>) -> Checked<T>,
    ) {
        let value = match need {
            Need::Required => self.required(field, check),
            Need::Optional => self.optional(field, check),
        };
        if let Some(value) = value {
            *place = value;
        }
    }

    /// Allows fields that are not read.
    pub(crate) fn ignore(&mut self, fields: &'static [&'static str]) {
        self.ignored = fields;
    }

    fn get(&mut self, field: &'static str) -> Checked<Option<Given<'a>>> {
        self.known.push(field);
        self.source.get(field)
    }
}

fn keep<T>(violations: &mut Vec<Violation>, checked: Checked<T>) -> Option<T> {
    checked.map_err(|faulty| violations.extend(faulty)).ok()
}

pub(crate) fn violation<T>(field: &str, code: &'static str, message: impl Display) -> Checked<T> {
    Err(vec![Violation::new(field, code, message)])
}

pub(crate) fn string<'a>(field: &str, given: &Given<'a>) -> Checked<&'a str> {
    match given {
        Given::Json(value) => value.as_str().map_or_else(|| wrong_type(field, "a string", value), Ok),
        Given::Form(texts) => Ok(texts.first().copied().unwrap_or_default()),
    }
}

pub(crate) fn boolean(field: &str, given: &Given<'_>) -> Checked<bool> {
    match given {
        Given::Json(value) => value.as_bool().map_or_else(|| wrong_type(field, "true or false", value), Ok),
        Given::Form(texts) => Ok(!texts.is_empty()),
    }
}

/// Reads an array of different values, of which there is at least one. `entry` is what a message calls one of them.
pub(crate) fn distinct<T: Display + PartialEq>(
    field: &str,
    given: &Given<'_>,
    entry: &str,
    repeated: &'static str,
    read: impl Fn(&str, &Given<'_>) -> Checked<T>,
) -> Checked<Vec<T>> {
    let entries: Vec<_> = match given {
        Given::Json(Value::Array(entries)) => entries.iter().map(Given::Json).collect(),
        Given::Json(value) => return wrong_type(field, &format!("an array of {entry}s"), value),
        Given::Form(texts) => texts.iter().map(|text| Given::Form(vec![text])).collect(),
    };
    if entries.is_empty() {
        return violation(field, "empty", format!("must list at least one {entry}"));
    }
    let (mut values, mut violations) = (Vec::new(), Vec::new());
    for (index, given) in entries.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        let value = read(&field, &given).and_then(|value| match values.contains(&value) {
            true => violation(&field, repeated, format!("repeats the {entry} {value}")),
            false => Ok(value),
        });
        values.extend(keep(&mut violations, value));
    }
    if violations.is_empty() { Ok(values) } else { Err(violations) }
}

pub(crate) fn event_type(field: &str, given: &Given<'_>) -> Checked<EventType> {
    let event_type = string(field, given)?.parse::<EventType>();
    event_type.or_else(|unknown| violation(field, "unknown_event_type", unknown.to_string()))
}

pub(crate) fn timestamp(field: &str, given: &Given<'_>) -> Checked<Timestamp> {
    let text = string(field, given)?;
    let text = if matches!(given, Given::Form(_)) { from_input(text) } else { text.into() };
    text.parse().or_else(|wrong: String| violation(field, "invalid_timestamp", format!("is {wrong}")))
}

/// The time in an input of a date and a time, which is UTC, as the API's calls write it.
pub(crate) fn from_input(input: &str) -> Cow<'_, str> {
    match input.len() {
        0 => input.into(),
        // Browsers leave out seconds that are zero.
        16 => format!("{input}:00Z").into(),
        _ => format!("{input}Z").into(),
    }
}

pub(crate) fn wrong_type<T>(field: &str, wanted: &str, value: &Value) -> Checked<T> {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    violation(field, "wrong_type", format!("must be {wanted}, not {found}"))
}

fn unknown(names: Vec<&str>, known: &[&str]) -> Vec<Violation> {
    let mut seen: HashSet<&str> = known.iter().copied().collect();
    let message = match known.split_last() {
        None => "is unknown here; no members are known".to_owned(),
        Some((last, [])) => format!("is unknown here; known is {last}"),
        Some((last, others)) => format!("is unknown here; known are {} and {last}", others.join(", ")),
    };
    let names = names.into_iter().filter(|name| seen.insert(name));
    names.map(|name| Violation::new(name, "unknown_field", &*message)).collect()
}
