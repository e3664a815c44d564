//! The description of the API and the API itself agree.
use std::collections::BTreeSet;

use end_to_end::{api::Answer, servers::repository, system::TestSystem};
use serde_json::{Map, Value, json};

/// The committed description of the API.
pub(crate) fn described() -> Value {
    let file = repository().join("proto-schemas/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(file).expect("it is committed")).expect("it is JSON")
}

#[test]
fn every_schema_is_a_valid_one_and_every_example_satisfies_its_schema() {
    let document = described();
    for schema in document["components"]["schemas"].as_object().unwrap().values() {
        jsonschema::meta::validate(schema).unwrap();
    }
    let mut examples = Vec::new();
    find_examples(&document, &document["paths"], &mut examples);
    find_examples(&document, &document["components"]["responses"], &mut examples);
    let parameters = document["components"]["parameters"].as_object().unwrap().values();
    examples.extend(parameters.map(|parameter| (parameter["schema"].clone(), parameter["example"].clone())));
    assert!(examples.len() > 30, "{}", examples.len());
    for (schema, example) in examples {
        validate(&document, &schema, &example, &example.to_string());
    }
}

/// Finds the examples of bodies, each with its schema.
fn find_examples(document: &Value, place: &Value, found: &mut Vec<(Value, Value)>) {
    if let Some(media_types) = place.get("content").and_then(Value::as_object) {
        for content in media_types.values() {
            let many = content["examples"].as_object().into_iter().flat_map(|many| many.values());
            let values = many.map(|example| &resolve(document, example)["value"]).chain(content.get("example"));
            found.extend(values.map(|value| (content["schema"].clone(), value.clone())));
        }
        return;
    }
    match place {
        Value::Object(members) => members.values().for_each(|member| find_examples(document, member, found)),
        Value::Array(items) => items.iter().for_each(|item| find_examples(document, item, found)),
        _ => {}
    }
}

fn resolve<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    part["$ref"].as_str().map_or(part, |name| document.pointer(name.trim_start_matches('#')).unwrap())
}

fn validate(document: &Value, schema: &Value, value: &Value, place: &str) {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let violations: Vec<_> =
        validator.iter_errors(value).map(|violation| format!("{}: {violation}", violation.instance_path())).collect();
    assert!(violations.is_empty(), "{place}: {violations:?}\n{value:#}");
}

/// Asserts that the members of a value come in the order in which the document describes them. The order binds no client,
/// but who reads an answer beside its description relies on it.
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

/// Judges answers by the description. It is stricter than a client: it rejects members that are not described.
pub(crate) struct Contract(Value);

impl Contract {
    /// By the committed description, which is the served one.
    pub(crate) fn committed() -> Self {
        let mut document = described();
        document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close_within);
        Self(document)
    }

    fn calls(&self) -> impl Iterator<Item = &Value> {
        let paths = self.0["paths"].as_object().unwrap().values();
        paths.flat_map(|calls| calls.as_object().unwrap().values())
    }

    fn call(&self, id: &str) -> &Value {
        self.calls().find(|call| call["operationId"] == id).unwrap_or_else(|| panic!("no call {id}"))
    }

    /// The ids of the described operations of this kind.
    pub(crate) fn operations(&self, is_meant: impl Fn(&Value) -> bool) -> BTreeSet<&str> {
        self.calls().filter(|call| is_meant(call)).map(|call| call["operationId"].as_str().unwrap()).collect()
    }

    fn resolve<'a>(&'a self, part: &'a Value) -> &'a Value {
        resolve(&self.0, part)
    }

    /// A query string of the examples of a call's parameters. A cursor is of a list that there is.
    fn query(&self, id: &str) -> String {
        let parameters =
            self.call(id)["parameters"].as_array().unwrap().iter().map(|parameter| self.resolve(parameter));
        let of_query = parameters.filter(|parameter| parameter["in"] == "query" && parameter["name"] != "cursor");
        let one = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let text = |value: &Value| match value {
            Value::Array(values) => values.iter().map(one).collect::<Vec<_>>().join(","),
            value => one(value),
        };
        let pairs = of_query.map(|parameter| format!("{}={}", text(&parameter["name"]), text(&parameter["example"])));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Asserts the status of an answer, and its headers, media type and body as the call's description says.
    pub(crate) fn check(&self, id: &str, status: u16, answer: &Answer) {
        let place = format!("{id} {status}");
        assert_eq!(answer.status, status, "{place}: {}", answer.text);
        let described = &self.call(id)["responses"][status.to_string()];
        assert!(!described.is_null(), "{place} is not described");
        let described = self.resolve(described);
        for (name, header) in described["headers"].as_object().unwrap() {
            let (value, header) = (answer.header(&name.to_lowercase()), self.resolve(header));
            if value.is_none() && header["required"] == false {
                continue;
            }
            let value = value.unwrap_or_else(|| panic!("{place}: no {name}"));
            let schema = &header["schema"];
            let value = if schema["type"] == "integer" { json!(value.parse::<u64>().unwrap()) } else { json!(value) };
            validate(&self.0, schema, &value, &place);
        }
        for name in ["location", "retry-after", "allow", "www-authenticate"] {
            let headers = described["headers"].as_object().unwrap();
            let header = headers.iter().find(|(known, _)| known.to_lowercase() == name).map(|(_, header)| header);
            let is_possible = header.is_some_and(|header| self.resolve(header)["required"] == false);
            assert!(is_possible || answer.header(name).is_some() == header.is_some(), "{place}: {name}");
        }
        match described["content"].as_object() {
            None => assert_eq!(answer.text, "", "{place}"),
            Some(content) => {
                let (media_type, content) = content.iter().next().unwrap();
                let sent = answer.header("content-type").unwrap().split(';').next().unwrap();
                assert_eq!(sent, media_type, "{place}");
                if media_type.ends_with("json") {
                    let mut schema = content["schema"].clone();
                    close(&mut schema);
                    validate(&self.0, &schema, &answer.json(), &place);
                    assert_like(&self.0, &schema, &answer.json());
                }
            }
        }
    }
}

/// Refuses undescribed members, in a schema and in those within it.
fn close(schema: &mut Value) {
    close_within(schema);
    if schema.get("properties").is_some() || schema.get("$ref").is_some() {
        schema["unevaluatedProperties"] = json!(false);
    }
}

/// Refuses undescribed members in the schemas within a schema. The schema itself may be extended by another one.
fn close_within(schema: &mut Value) {
    let extended = schema.get_mut("allOf").and_then(Value::as_array_mut);
    extended.into_iter().flatten().for_each(close_within);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|properties| properties.values_mut()).for_each(close);
    let choices = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    choices.into_iter().flatten().for_each(close);
    if let Some(items) = schema.get_mut("items") {
        close(items);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_described_parameter_is_accepted_and_an_error_in_a_query_is_described() {
    let system = TestSystem::shared().await;
    let (_, api) = system.tenant().await;
    let contract = Contract::committed();
    let webhook = api.create("https://127.0.0.1:1/", &["quote.closed"]).await.id;
    let path = format!("/api/v1/webhooks/{webhook}/");
    for (id, list) in [
        ("listWebhooks", "/api/v1/webhooks/"),
        ("listKeys", "/api/v1/keys/"),
        ("listDeliveries", &format!("{path}deliveries/")),
        ("listTenantDeliveries", "/api/v1/deliveries/"),
        ("listTenantHistory", "/api/v1/history/"),
        ("readStats", &format!("{path}stats/")),
        ("listNotices", &format!("{path}notices/")),
        ("listHistory", &format!("{path}history/")),
        ("listRecoveries", &format!("{path}recover/")),
    ] {
        contract.check(id, 200, &api.get(&format!("{list}?{}", contract.query(id))).await);
        contract.check(id, 400, &api.get(&format!("{list}?limit=x")).await);
    }
    let count = json!({"from": "2026-01-01T00:00:00Z", "count_only": true});
    contract.check("recoverDeliveries", 200, &api.recover(&webhook, &count).await);
}
