//! What a change of the AsyncAPI document breaks.

use serde_json::Value;

use super::breaking::{Role, in_schema, set};

/// Members of an AsyncAPI document that only people read.
const FOR_PEOPLE: [&str; 4] = ["description", "summary", "title", "examples"];

/// Whether two parts of an AsyncAPI document say the same to programs.
fn differ(old: &Value, new: &Value) -> bool {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let kept = members.iter().filter(|(name, _)| !FOR_PEOPLE.contains(&name.as_str()));
                kept.map(|(name, value)| (name.clone(), plain(value))).collect()
            }
            Value::Array(items) => items.iter().map(plain).collect(),
            value => value.clone(),
        }
    }
    plain(old) != plain(new)
}

/// The breaking changes between two versions of an AsyncAPI document, its schemas' files aside.
pub(super) fn in_asyncapi(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let named = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut compare = |kind: &str, at: &str, parts: &[&str]| {
        for (name, one) in named(old.pointer(at).unwrap_or(&Value::Null)) {
            let now = &new.pointer(at).unwrap_or(&Value::Null)[&name];
            if now.is_null() {
                found.push(format!("{kind} {name} is gone"));
                continue;
            }
            for part in parts.iter().filter(|part| differ(&one[**part], &now[**part])) {
                found.push(format!("{kind} {name}: {part} is changed"));
            }
        }
    };
    compare("server", "/servers", &["protocol", "protocolVersion", "security"]);
    compare("channel", "/channels", &["address", "bindings", "parameters", "servers"]);
    compare("operation", "/operations", &["action", "bindings", "channel", "reply"]);
    compare("message", "/components/messages", &["bindings", "contentType", "correlationId", "payload"]);
    for (name, channel) in named(&old["channels"]) {
        let now = &new["channels"][&name]["messages"];
        for (message, _) in named(&channel["messages"]).into_iter().filter(|(message, _)| now[message].is_null()) {
            found.push(format!("channel {name}: message {message} is gone"));
        }
    }
    for (name, operation) in named(&old["operations"]) {
        let now = set(&new["operations"][&name]["messages"]);
        found.extend(
            set(&operation["messages"]).difference(&now).map(|gone| format!("operation {name}: {gone} is gone")),
        );
    }
    for (name, message) in named(&old["components"]["messages"]) {
        let (old, now) = (&message["headers"], &new["components"]["messages"][&name]["headers"]);
        let role = match name.as_str() {
            "event" => Role::Received,
            "job" => Role::Both,
            _ => Role::Sent,
        };
        found.extend(in_schema(old, now, role).into_iter().map(|change| format!("headers of {name}: {change}")));
        // One that is not read any more breaks nobody's message, but whoever sends it counts on it.
        let gone = named(&old["properties"]).into_iter().filter(|(header, _)| now["properties"][header].is_null());
        found.extend(gone.map(|(header, _)| format!("headers of {name}: {header} is gone")));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_gone_or_renamed_in_the_asyncapi_document_breaks() {
        let old = json!({
            "servers": {"s": {"protocol": "amqp"}},
            "channels": {"c": {
                "address": "q", "title": "t", "messages": {"m": {}}, "bindings": {"amqp": {"exchange": {"type": "topic"}}},
                "parameters": {"p": {"enum": ["1s", "2s"], "description": "d"}},
            }},
            "operations": {"o": {
                "action": "send", "channel": {"$ref": "#/c"}, "messages": [{"$ref": "#/m"}],
                "bindings": {"http": {"method": "POST"}},
            }},
            "components": {"messages": {
                "m": {"payload": {"$ref": "f", "description": "d"}, "headers": {"required": ["h"]}},
                "event": {"payload": {}, "headers": {"properties": {"trace": {}}}},
            }},
        });
        assert_eq!(in_asyncapi(&old, &old), Vec::<String>::new());
        for (pointer, value) in [
            ("/servers/s/protocol", json!("amqps")),
            ("/channels/c/address", json!("r")),
            ("/channels/c/messages", json!({})),
            ("/channels/c/bindings/amqp/exchange/type", json!("direct")),
            ("/channels/c/parameters/p/enum", json!(["1s"])),
            ("/operations", json!({})),
            ("/operations/o/action", json!("receive")),
            ("/operations/o/channel", json!({"$ref": "#/d"})),
            ("/operations/o/messages", json!([])),
            ("/operations/o/bindings/http/method", json!("PUT")),
            ("/components/messages/m/payload", json!({"$ref": "g"})),
            ("/components/messages/m/headers", json!({})),
            ("/components/messages/event/headers/properties", json!({"traceparent": {}})),
        ] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = value;
            assert!(!in_asyncapi(&old, &new).is_empty(), "{pointer}");
        }
        for pointer in ["/channels/c/title", "/channels/c/parameters/p/description"] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).unwrap() = json!("other words");
            assert_eq!(in_asyncapi(&old, &new), Vec::<String>::new(), "{pointer}");
        }
        assert!(in_asyncapi(&old, &json!({})).len() >= 4);
    }
}
