//! What a change of a contract breaks.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Who writes the messages of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Others write them: what was good must stay good.
    Received,
    /// We write them: what others may get must fit what they knew.
    Sent,
    /// Two versions of ours exchange them.
    Both,
}

/// Keywords that change no verdict.
const WORDS: [&str; 8] = ["$comment", "$id", "$schema", "default", "description", "examples", "title", "x-extensible"];
/// Keywords that refuse more the higher they are, and the lower.
const LEAST: [&str; 5] = ["exclusiveMinimum", "minItems", "minLength", "minProperties", "minimum"];
const MOST: [&str; 5] = ["exclusiveMaximum", "maxItems", "maxLength", "maxProperties", "maximum"];

/// The breaking changes between two versions of a JSON Schema.
pub(super) fn in_schema(old: &Value, new: &Value, role: Role) -> Vec<String> {
    let mut found = Vec::new();
    if role != Role::Sent {
        refused(old, new, "", &mut |what| found.push(format!("refuses what was good: {what}")));
    }
    if role != Role::Received {
        refused(new, old, "", &mut |what| found.push(format!("allows what was refused: {what}")));
    }
    found
}

/// What `taker` refuses although `giver` allows it, as far as can be seen keyword by keyword.
fn refused(giver: &Value, taker: &Value, place: &str, found: &mut impl FnMut(String)) {
    let none = Map::new();
    let (gives, takes) = (giver.as_object().unwrap_or(&none), taker.as_object().unwrap_or(&none));
    for (keyword, wanted) in takes {
        let given = &giver[keyword];
        let number = |value: &Value| value.as_f64();
        let is_refused = match keyword.as_str() {
            word if WORDS.contains(&word) => false,
            // A consumer was told to expect further values.
            "enum" if taker["x-extensible"] == true => false,
            "oneOf" if taker["x-extensible"] == true => !set(wanted).is_subset(&set(given)),
            "enum" | "type" => given.is_null() && giver["const"].is_null() || !is_within(giver, keyword, wanted),
            "required" => !set(wanted).is_subset(&set(given)),
            least if LEAST.contains(&least) => number(given).is_none_or(|given| Some(given) < number(wanted)),
            most if MOST.contains(&most) => number(given).is_none_or(|given| Some(given) > number(wanted)),
            "properties" => {
                members(gives, wanted, place, found);
                false
            }
            "additionalProperties" => {
                let extra = giver["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
                let is_known = |name: &String| taker["properties"].get(name).is_some();
                *wanted == false && (*given != false || !extra.into_iter().all(is_known))
                    || wanted.is_object() && wanted != given
            }
            "items" => {
                refused(given, wanted, &format!("{place}/items"), found);
                false
            }
            _ => given != wanted,
        };
        if is_refused {
            found(format!("{} {keyword}", if place.is_empty() { "/" } else { place }));
        }
    }
}

/// Whether the values that are given are among those that are wanted. A `const` is an `enum` of one.
fn is_within(giver: &Value, keyword: &str, wanted: &Value) -> bool {
    let given = match &giver[keyword] {
        Value::Null if keyword == "enum" => set(&giver["const"]),
        given => set(given),
    };
    given.is_subset(&set(wanted))
}

fn members(gives: &Map<String, Value>, wanted: &Value, place: &str, found: &mut impl FnMut(String)) {
    for (name, wanted) in wanted.as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        match gives.get("properties").and_then(|given| given.get(name)) {
            Some(given) => refused(given, wanted, &place, found),
            // Anything could be given under this name.
            None if gives.get("additionalProperties") != Some(&Value::Bool(false)) => {
                refused(&Value::Null, wanted, &place, found);
            }
            None => {}
        }
    }
}

fn set(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Null => BTreeSet::new(),
        Value::Array(values) => values.iter().map(Value::to_string).collect(),
        value => BTreeSet::from([value.to_string()]),
    }
}

/// The breaking changes between two versions of an AsyncAPI document, its schemas' files aside.
pub(super) fn in_asyncapi(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let named = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (name, channel) in named(&old["channels"]) {
        let now = &new["channels"][&name];
        for part in ["address", "bindings"] {
            if channel[part] != now[part] {
                found.push(format!("channel {name}: {part} is changed"));
            }
        }
        for (message, _) in named(&channel["messages"]) {
            if now["messages"][&message].is_null() {
                found.push(format!("channel {name}: message {message} is gone"));
            }
        }
    }
    for (name, operation) in named(&old["operations"]) {
        if operation["action"] != new["operations"][&name]["action"] {
            found.push(format!("operation {name} is gone, or turned round"));
        }
    }
    for (name, message) in named(&old["components"]["messages"]) {
        let now = &new["components"]["messages"][&name];
        let role = if name == "event" { Role::Received } else { Role::Sent };
        let headers = in_schema(&message["headers"], &now["headers"], role);
        found.extend(headers.into_iter().map(|change| format!("headers of {name}: {change}")));
        for part in ["contentType", "payload"] {
            if message[part] != now[part] {
                found.push(format!("message {name}: {part} is changed"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(change: impl Fn(&mut Value)) -> (Vec<String>, Vec<String>) {
        let old = json!({"type": "object", "required": ["a"], "additionalProperties": true, "properties": {
            "a": {"type": "string", "enum": ["x", "y"], "maxLength": 5},
            "b": {"type": "array", "minItems": 1, "items": {"type": ["string", "null"], "format": "uuid"}},
        }});
        let mut new = old.clone();
        change(&mut new);
        (in_schema(&old, &new, Role::Received), in_schema(&old, &new, Role::Sent))
    }

    #[test]
    fn each_change_breaks_whom_it_breaks() {
        type Change = fn(&mut Value);
        let cases: [(Change, bool, bool); 16] = [
            (|new| new["description"] = json!("words"), false, false),
            (|new| new["required"] = json!(["a", "b"]), true, false),
            (|new| new["required"] = json!([]), false, true),
            (|new| new["properties"]["a"]["enum"] = json!(["x"]), true, false),
            (|new| new["properties"]["a"]["enum"] = json!(["x", "y", "z"]), false, true),
            (|new| new["properties"]["a"]["maxLength"] = json!(4), true, false),
            (|new| new["properties"]["a"]["maxLength"] = json!(6), false, true),
            (|new| new["properties"]["b"]["minItems"] = json!(0), false, true),
            (|new| new["properties"]["b"]["items"]["type"] = json!("string"), true, false),
            (|new| new["properties"]["b"]["items"]["type"] = json!(["string", "null", "integer"]), false, true),
            (|new| new["properties"]["b"]["items"]["format"] = json!("uri"), true, true),
            (|new| drop(new["properties"]["a"].as_object_mut().unwrap().remove("enum")), false, true),
            (|new| new["additionalProperties"] = json!(false), true, false),
            (|new| new["properties"]["c"] = json!({"description": "may be anything"}), false, false),
            (|new| new["properties"]["c"] = json!({"type": "string"}), true, false),
            (|new| drop(new["properties"].as_object_mut().unwrap().remove("b")), false, true),
        ];
        for (nth, (change, breaks_publishers, breaks_consumers)) in cases.into_iter().enumerate() {
            let (received, sent) = changed(change);
            assert_eq!(
                (!received.is_empty(), !sent.is_empty()),
                (breaks_publishers, breaks_consumers),
                "{nth}: {received:?} {sent:?}"
            );
        }
    }

    #[test]
    fn a_closed_message_gets_no_further_member_and_an_extensible_list_may_grow() {
        let closed = json!({"additionalProperties": false, "properties": {"a": {}}});
        let wider = json!({"additionalProperties": false, "properties": {"a": {}, "b": {}}});
        assert_eq!(in_schema(&closed, &wider, Role::Sent).len(), 1);
        assert_eq!(in_schema(&closed, &wider, Role::Received).len(), 0);
        assert_eq!(in_schema(&wider, &closed, Role::Received).len(), 1);
        let (old, new) = (json!({"x-extensible": true, "enum": [1]}), json!({"x-extensible": true, "enum": [1, 2]}));
        assert_eq!(in_schema(&old, &new, Role::Sent).len(), 0);
        assert_eq!(in_schema(&new, &old, Role::Received).len(), 0, "consumers do not refuse what they do not know");
    }

    #[test]
    fn what_is_gone_or_renamed_in_the_asyncapi_document_breaks() {
        let old = json!({
            "channels": {"c": {"address": "q", "messages": {"m": {}}}},
            "operations": {"o": {"action": "send"}},
            "components": {"messages": {"m": {"payload": {"$ref": "f"}, "headers": {"required": ["h"]}}}},
        });
        assert_eq!(in_asyncapi(&old, &old), Vec::<String>::new());
        for (pointer, value) in [
            ("/channels/c/address", json!("r")),
            ("/channels/c/messages", json!({})),
            ("/operations/o/action", json!("receive")),
            ("/components/messages/m/payload", json!({"$ref": "g"})),
            ("/components/messages/m/headers", json!({})),
        ] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            assert_eq!(in_asyncapi(&old, &new).len(), 1, "{pointer}");
        }
        assert!(in_asyncapi(&old, &json!({})).len() >= 4);
    }
}
