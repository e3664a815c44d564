//! Checks of a body's members that several calls share.

use std::{collections::HashSet, fmt::Display};

use domain::{EventType, Timestamp};
use serde_json::Value;

use super::json::{Members, Need};
use crate::{state::Rules, violation::Violation};

/// A checked value, or all its violations.
pub(crate) type Checked<T> = Result<T, Vec<Violation>>;

/// What a call reads from its body.
pub(crate) trait FromBody: Sized + 'static {
    const NEED: Need = Need::Required;

    /// Checks every member and reports all violations at once.
    fn read(members: &Members, rules: &Rules) -> Checked<Self>;
}

/// Collects a body's violations, so that all are reported at once.
pub(crate) struct Fields<'a> {
    members: &'a [(String, Value)],
    violations: Vec<Violation>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(Members(members): &'a Members) -> Self {
        Self { members, violations: Vec::new() }
    }

    /// Reads a member that must be present. `None` when it has a violation.
    pub(crate) fn required<T>(&mut self, field: &str, check: impl FnOnce(&Value) -> Checked<T>) -> Option<T> {
        let value = single(self.members, field);
        let value = value.and_then(|value| value.map_or_else(|| violation(field, "required", "is required"), Ok));
        keep(&mut self.violations, value.and_then(check))
    }

    /// Reads a member that may be absent. `None` when it is absent or has a violation.
    pub(crate) fn optional<T>(&mut self, field: &str, check: impl FnOnce(&Value) -> Checked<T>) -> Option<T> {
        let value = single(self.members, field).and_then(|value| value.map(check).transpose());
        keep(&mut self.violations, value).flatten()
    }

    /// Returns `read` if there is no violation. A member that is not in `known` is one.
    pub(crate) fn finish<T>(mut self, known: &[&str], read: Option<T>) -> Checked<T> {
        self.violations.extend(unknown(self.members, known));
        match read {
            Some(read) if self.violations.is_empty() => Ok(read),
            _ => Err(self.violations),
        }
    }
}

fn keep<T>(violations: &mut Vec<Violation>, checked: Checked<T>) -> Option<T> {
    checked.map_err(|faulty| violations.extend(faulty)).ok()
}

pub(crate) fn violation<T>(field: &str, code: &'static str, message: impl Display) -> Checked<T> {
    Err(vec![Violation::new(field, code, message)])
}

pub(crate) fn string<'a>(field: &str, value: &'a Value) -> Checked<&'a str> {
    value.as_str().map_or_else(|| wrong_type(field, "a string", value), Ok)
}

pub(crate) fn boolean(field: &str, value: &Value) -> Checked<bool> {
    value.as_bool().map_or_else(|| wrong_type(field, "true or false", value), Ok)
}

/// Reads an array of different values, of which there is at least one. `entry` is what a message calls one of them.
pub(crate) fn distinct<T: Display + PartialEq>(
    field: &str,
    value: &Value,
    entry: &str,
    repeated: &'static str,
    read: impl Fn(&str, &Value) -> Checked<T>,
) -> Checked<Vec<T>> {
    let Some(entries) = value.as_array() else {
        return wrong_type(field, &format!("an array of {entry}s"), value);
    };
    if entries.is_empty() {
        return violation(field, "empty", format!("must list at least one {entry}"));
    }
    let (mut values, mut violations) = (Vec::new(), Vec::new());
    for (index, value) in entries.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let value = read(&field, value).and_then(|value| match values.contains(&value) {
            true => violation(&field, repeated, format!("repeats the {entry} {value}")),
            false => Ok(value),
        });
        values.extend(keep(&mut violations, value));
    }
    if violations.is_empty() { Ok(values) } else { Err(violations) }
}

pub(crate) fn event_type(field: &str, value: &Value) -> Checked<EventType> {
    let event_type = string(field, value)?.parse::<EventType>();
    event_type.or_else(|unknown| violation(field, "unknown_event_type", unknown.to_string()))
}

pub(crate) fn timestamp(field: &str, value: &Value) -> Checked<Timestamp> {
    let timestamp = string(field, value)?.parse::<Timestamp>();
    timestamp.or_else(|wrong| violation(field, "invalid_timestamp", format!("is {wrong}")))
}

fn wrong_type<T>(field: &str, wanted: &str, value: &Value) -> Checked<T> {
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

fn single<'a>(members: &'a [(String, Value)], field: &str) -> Checked<Option<&'a Value>> {
    let mut values = members.iter().filter(|(name, _)| name == field).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => violation(field, "repeated_field", "is given more than once"),
        (value, _) => Ok(value),
    }
}

fn unknown(members: &[(String, Value)], known: &[&str]) -> Vec<Violation> {
    let mut seen: HashSet<&str> = known.iter().copied().collect();
    let message = match known.split_last() {
        None => "is unknown here; no members are known".to_owned(),
        Some((last, [])) => format!("is unknown here; known is {last}"),
        Some((last, others)) => format!("is unknown here; known are {} and {last}", others.join(", ")),
    };
    let names = members.iter().map(|(name, _)| name.as_str()).filter(|name| seen.insert(name));
    names.map(|name| Violation::new(name, "unknown_field", &*message)).collect()
}
