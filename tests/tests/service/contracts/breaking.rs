//! What a change of a contract breaks.

use std::collections::BTreeSet;

use serde_json::Value;

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
const WORDS: [&str; 9] =
    ["$comment", "$id", "$schema", "default", "definitions", "description", "examples", "title", "x-extensible"];
/// Keywords that refuse more the higher they are, and the lower.
const LEAST: [&str; 5] = ["exclusiveMinimum", "minItems", "minLength", "minProperties", "minimum"];
const MOST: [&str; 5] = ["exclusiveMaximum", "maxItems", "maxLength", "maxProperties", "maximum"];

/// The breaking changes between two versions of a JSON Schema.
pub(super) fn in_schema(old: &Value, new: &Value, role: Role) -> Vec<String> {
    let mut found = Vec::new();
    let (plain_old, plain_new) = (resolved(old, old), resolved(new, new));
    if role != Role::Sent {
        let comparison = Comparison { told_to_expect_more: false };
        comparison
            .refused(&plain_old, &plain_new, "", &mut |what| found.push(format!("refuses what was good: {what}")));
    }
    if role != Role::Received {
        let comparison = Comparison { told_to_expect_more: true };
        comparison
            .refused(&plain_new, &plain_old, "", &mut |what| found.push(format!("allows what was refused: {what}")));
    }
    found
}

/// A schema with what its references lead to in their place, and without words.
fn resolved(schema: &Value, root: &Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            if let Some(target) = keywords.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
                return resolved(root.pointer(target).expect("a reference leads somewhere"), root);
            }
            let kept = keywords.iter().filter(|(name, value)| {
                // A member may have the name of a keyword: then its value is a schema.
                *name == "x-extensible" || !WORDS.contains(&name.as_str()) || is_schema_of_a_member(name, value)
            });
            kept.map(|(name, value)| (name.clone(), resolved(value, root))).collect()
        }
        Value::Array(items) => items.iter().map(|item| resolved(item, root)).collect(),
        value => value.clone(),
    }
}

/// `title` and its like are texts as keywords, and schemas as members. Only `definitions` and `default` may be both.
fn is_schema_of_a_member(name: &str, value: &Value) -> bool {
    value.is_object() && !matches!(name, "definitions" | "default")
}

/// A comparison in one direction: what one side gives, and what the other takes.
struct Comparison {
    /// Whether the taker knows that there may be further values where a schema says `x-extensible`.
    told_to_expect_more: bool,
}

impl Comparison {
    /// What `taker` refuses although `giver` allows it, as far as can be seen keyword by keyword.
    fn refused(&self, giver: &Value, taker: &Value, place: &str, found: &mut dyn FnMut(String)) {
        let here = if place.is_empty() { "/" } else { place };
        if *taker == false && *giver != false {
            found(format!("{here} false"));
        }
        for (keyword, wanted) in taker.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "properties" => self.members(giver, wanted, place, found),
                "items" => self.refused(&giver["items"], wanted, &format!("{place}/items"), found),
                _ if self.is_refused(giver, taker, keyword) => found(format!("{here} {keyword}")),
                _ => {}
            }
        }
        // A consumer would learn only now that there may be further values.
        if self.told_to_expect_more && giver["x-extensible"] == true && taker["x-extensible"] != true {
            found(format!("{here} x-extensible"));
        }
    }

    /// Whether one keyword of the taker refuses what the giver allows.
    fn is_refused(&self, giver: &Value, taker: &Value, keyword: &str) -> bool {
        let (given, wanted) = (&giver[keyword], &taker[keyword]);
        let is_extensible = self.told_to_expect_more && taker["x-extensible"] == true;
        let number = |value: &Value| value.as_f64();
        match keyword {
            "x-extensible" => false,
            "enum" if is_extensible => false,
            "enum" => !values(giver).is_some_and(|values| values.is_subset(&set(wanted))),
            "type" => !types(giver).is_some_and(|types| types.iter().all(|one| is_type(one, wanted))),
            "oneOf" => !self.is_each_taken(given, wanted, is_extensible),
            "required" => !set(wanted).is_subset(&set(given)),
            least if LEAST.contains(&least) => number(given).is_none_or(|given| Some(given) < number(wanted)),
            most if MOST.contains(&most) => number(given).is_none_or(|given| Some(given) > number(wanted)),
            "additionalProperties" => {
                let extra = giver["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
                let is_known = |name: &String| taker["properties"].get(name).is_some();
                *wanted == false && (*given != false || !extra.into_iter().all(is_known))
                    || wanted.is_object() && wanted != given
            }
            _ => given != wanted,
        }
    }

    /// Whether each case that is given is one that is taken. An extensible list may have more, but each that was known
    /// stays.
    fn is_each_taken(&self, given: &Value, wanted: &Value, is_extensible: bool) -> bool {
        let fits = |giver: &Value, taker: &Value| {
            let mut is_good = true;
            self.refused(giver, taker, "", &mut |_| is_good = false);
            is_good
        };
        let cases = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let (given, wanted) = (cases(given), cases(wanted));
        if is_extensible {
            return wanted.iter().all(|wanted| given.iter().any(|given| fits(given, wanted)));
        }
        !given.is_empty() && given.iter().all(|given| wanted.iter().any(|wanted| fits(given, wanted)))
    }

    fn members(&self, giver: &Value, wanted: &Value, place: &str, found: &mut dyn FnMut(String)) {
        for (name, wanted) in wanted.as_object().into_iter().flatten() {
            let place = format!("{place}/{name}");
            match giver["properties"].get(name) {
                Some(given) => self.refused(given, wanted, &place, found),
                // Anything could be given under this name.
                None if giver["additionalProperties"] != false => {
                    self.refused(&Value::Null, wanted, &place, found);
                }
                None => {}
            }
        }
    }
}

/// The values that a schema allows, if it lists them. A `const` is an `enum` of one.
fn values(schema: &Value) -> Option<BTreeSet<String>> {
    match (&schema["enum"], &schema["const"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, value) => Some(BTreeSet::from([value.to_string()])),
        (values, _) => Some(set(values)),
    }
}

/// The types that a schema allows, or of the values that it lists. `None` if it allows any.
fn types(schema: &Value) -> Option<Vec<&str>> {
    let of = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (&schema["type"], &schema["enum"], &schema["const"]) {
        (Value::String(one), ..) => Some(vec![one.as_str()]),
        (Value::Array(several), ..) => Some(several.iter().filter_map(Value::as_str).collect()),
        (_, Value::Array(values), _) => Some(values.iter().map(of).collect()),
        (_, Value::Null, Value::Null) => None,
        (.., value) => Some(vec![of(value)]),
    }
}

/// Whether a type is among those that are wanted. An integer is a number.
fn is_type(one: &str, wanted: &Value) -> bool {
    let wanted = set(wanted);
    let has = |name: &str| wanted.contains(&Value::from(name).to_string());
    has(one) || one == "integer" && has("number")
}

pub(super) fn set(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Null => BTreeSet::new(),
        Value::Array(values) => values.iter().map(Value::to_string).collect(),
        value => BTreeSet::from([value.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(change: impl Fn(&mut Value)) -> (Vec<String>, Vec<String>) {
        let old = json!({"type": "object", "required": ["a"], "additionalProperties": true, "properties": {
            "a": {"type": "string", "enum": ["x", "y"], "maxLength": 5},
            "b": {"type": "array", "minItems": 1, "items": {"type": ["string", "null"], "format": "uuid"}},
            "n": {"type": "array", "items": {"$ref": "#/definitions/d"}},
        }, "oneOf": [
            {"required": ["kind"], "properties": {"kind": {"const": 1}}},
            {"properties": {"kind": {"const": 2}}},
        ], "definitions": {"d": {"required": ["e"], "properties": {"e": {"type": "integer", "maximum": 9}}}}});
        let mut new = old.clone();
        change(&mut new);
        (in_schema(&old, &new, Role::Received), in_schema(&old, &new, Role::Sent))
    }

    #[test]
    fn each_change_breaks_whom_it_breaks() {
        type Change = fn(&mut Value);
        let cases: [(Change, bool, bool); 26] = [
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
            (|new| new["properties"]["a"]["pattern"] = json!("^x"), true, false),
            (|new| new["properties"]["c"] = json!(false), true, false),
            (|new| new["properties"]["b"]["items"]["x-extensible"] = json!(true), false, true),
            (|new| new["definitions"]["d"]["description"] = json!("words"), false, false),
            (|new| new["definitions"]["d"]["properties"]["e"]["maximum"] = json!(8), true, false),
            (|new| new["definitions"]["d"]["required"] = json!(["e", "f"]), true, false),
            (|new| new["oneOf"][0]["properties"]["kind"]["title"] = json!("words"), false, false),
            (|new| new["oneOf"][0]["required"] = json!([]), false, true),
            (|new| drop(new["oneOf"].as_array_mut().unwrap().remove(0)), true, false),
            (
                |new| new["oneOf"].as_array_mut().unwrap().push(json!({"properties": {"kind": {"const": 3}}})),
                false,
                true,
            ),
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
        assert_eq!(in_schema(&new, &old, Role::Sent).len(), 0, "what is not sent any more breaks nobody");
        assert_eq!(in_schema(&new, &old, Role::Received).len(), 1, "the service refuses what it does not know");
        let cases = |kinds: &[u8]| {
            let one = |kind| json!({"properties": {"kind": {"const": kind}}});
            json!({"x-extensible": true, "oneOf": kinds.iter().map(one).collect::<Vec<_>>()})
        };
        assert_eq!(in_schema(&cases(&[1]), &cases(&[1, 2]), Role::Sent).len(), 0);
        assert_eq!(in_schema(&cases(&[1, 2]), &cases(&[1]), Role::Sent).len(), 1);
    }

    #[test]
    fn a_type_that_only_the_values_show_counts() {
        let old = json!({"enum": ["a", "b"]});
        assert_eq!(in_schema(&old, &json!({"type": "string", "enum": ["a", "b"]}), Role::Received).len(), 0);
        assert_eq!(in_schema(&old, &json!({"type": "integer", "enum": ["a", "b"]}), Role::Received).len(), 1);
        assert_eq!(in_schema(&json!({"const": 1}), &json!({"type": "string"}), Role::Received).len(), 1);
        assert_eq!(in_schema(&json!({"type": "integer"}), &json!({"type": "number"}), Role::Received).len(), 0);
        assert_eq!(in_schema(&json!({"type": "number"}), &json!({"type": "integer"}), Role::Received).len(), 1);
    }
}
