//! The documented order of members. It binds no client, but who reads an answer beside its description relies on it.

use end_to_end::api::Answer;
use serde_json::{Map, Value};

/// Asserts that the members of an answer of this operation come in the order in which the document describes them.
pub(crate) fn assert_documented(document: &Value, operation: &str, answer: &Answer) {
    let media_type = answer.header("content-type").expect("JSON is named");
    let described = if media_type == "application/problem+json" {
        &document["components"]["schemas"]["Problem"]
    } else {
        let calls = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let mut calls = calls.flat_map(|calls| calls.as_object().expect("there are calls").values());
        let call = calls.find(|call| call["operationId"] == operation).expect("it is described");
        &call["responses"][answer.status.to_string()]["content"][media_type]["schema"]
    };
    assert!(described.is_object(), "{operation} {} as {media_type} is described", answer.status);
    assert_like(document, described, &answer.json());
}

fn assert_like(document: &Value, schema: &Value, value: &Value) {
    let schema = resolve(document, schema);
    let described = described_members(document, schema);
    if let (false, Some(members)) = (described.is_empty(), value.as_object()) {
        let documented: Vec<_> = described.keys().filter(|name| members.contains_key(*name)).collect();
        assert_eq!(members.keys().collect::<Vec<_>>(), documented, "the members of {value}");
        members.iter().for_each(|(name, member)| assert_like(document, &described[name], member));
    }
    value.as_array().into_iter().flatten().for_each(|item| assert_like(document, &schema["items"], item));
}

/// The members that a schema describes, with those of the schemas that it extends.
fn described_members(document: &Value, schema: &Value) -> Map<String, Value> {
    let extended = schema["allOf"].as_array().into_iter().flatten().map(|part| resolve(document, part));
    let parts = extended.chain([schema]);
    parts.filter_map(|part| part["properties"].as_object().cloned()).flatten().collect()
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let referred = schema["$ref"].as_str().and_then(|name| document.pointer(name.trim_start_matches('#')));
    referred.unwrap_or(schema)
}
