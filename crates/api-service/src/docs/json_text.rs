//! JSON laid out for people: short arrays and objects stay on one line.

use serde_json::Value;

const WIDTH: usize = 88;

pub(super) fn pretty(value: &Value) -> String {
    write(value, 0)
}

fn write(value: &Value, indent: usize) -> String {
    let flat = flat(value);
    if indent + flat.chars().count() <= WIDTH {
        return flat;
    }
    let pad = " ".repeat(indent + 2);
    let lines: Vec<String> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| format!("{pad}{}: {}", Value::from(name.as_str()), write(member, indent + 2)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| format!("{pad}{}", write(item, indent + 2))).collect(),
        _ => return flat,
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    format!("{open}\n{}\n{}{close}", lines.join(",\n"), " ".repeat(indent))
}

fn flat(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(name, member)| format!("{}: {}", Value::from(name.as_str()), flat(member)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flat).collect::<Vec<_>>().join(", ")),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fits_stays_on_its_line() {
        assert_eq!(pretty(&json!({"b": [1, "x"], "a": {}})), r#"{"b": [1, "x"], "a": {}}"#);
        let long = json!({"a": "x".repeat(90), "b": [1, 2]});
        assert_eq!(pretty(&long), format!("{{\n  \"a\": \"{}\",\n  \"b\": [1, 2]\n}}", "x".repeat(90)));
        assert_eq!(serde_json::from_str::<Value>(&pretty(&long)).unwrap(), long);
    }
}
