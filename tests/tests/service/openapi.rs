//! The description of the API and the API itself agree.
use std::{fs, time::Duration};

use domain::EventType;
use end_to_end::{
    api::{Answer, Api},
    events::Event,
    history,
    receiver::{Receiver, Reply, behaviour},
    servers::repository,
    system::{Options, Service, System},
};
use serde_json::{Value, json};
use service_kit::Settings;
use uuid::Uuid;

fn committed() -> Value {
    serde_json::from_str(&fs::read_to_string(repository().join("proto-schemas/openapi.json")).unwrap()).unwrap()
}

#[test]
fn every_schema_is_a_valid_one_and_every_example_satisfies_its_schema() {
    let document = committed();
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

/// Judges answers by the description. It is stricter than a client: it rejects members that are not described.
struct Contract(Value);

impl Contract {
    async fn served(api: &Api) -> Self {
        let answer = api.get("/api/v1/openapi.json").await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let mut document = answer.json();
        document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close_within);
        Self(document)
    }

    fn call(&self, id: &str) -> &Value {
        let paths = self.0["paths"].as_object().unwrap().values();
        let mut calls = paths.flat_map(|calls| calls.as_object().unwrap().values());
        calls.find(|call| call["operationId"] == id).unwrap_or_else(|| panic!("no call {id}"))
    }

    fn resolve<'a>(&'a self, part: &'a Value) -> &'a Value {
        resolve(&self.0, part)
    }

    /// A query string of the examples of a call's parameters. A cursor is of a list that there is.
    fn query(&self, id: &str) -> String {
        let parameters =
            self.call(id)["parameters"].as_array().unwrap().iter().map(|parameter| self.resolve(parameter));
        let of_query = parameters.filter(|parameter| parameter["in"] == "query" && parameter["name"] != "cursor");
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let pairs = of_query.map(|parameter| format!("{}={}", text(&parameter["name"]), text(&parameter["example"])));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Asserts the status of an answer, and its headers, media type and body as the call's description says.
    fn check(&self, id: &str, status: u16, answer: &Answer) {
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

const JSON: (&str, &str) = ("content-type", "application/json");

/// Every described parameter is accepted. `path` is a webhook's.
async fn queries(api: &Api, contract: &Contract, path: &str) {
    contract.check(
        "listWebhooks",
        200,
        &api.get(&format!("/api/v1/webhooks/?{}", contract.query("listWebhooks"))).await,
    );
    for (id, call) in [
        ("listDeliveries", "deliveries/"),
        ("readStats", "stats/"),
        ("listNotices", "notices/"),
        ("listHistory", "history/"),
    ] {
        contract.check(id, 200, &api.get(&format!("{path}{call}?{}", contract.query(id))).await);
    }
}

/// A recovery during a cancellation, at this path, and one beside a running one. Only the latter has a `Location`.
async fn of_refused_recoveries(system: &System, api: &Api, contract: &Contract, cancelling: &str) {
    let since = json!({"since": "2026-01-01T00:00:00Z"});
    contract.check("recoverDeliveries", 409, &api.post(&format!("{cancelling}recover/"), &since).await);
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    let running = "INSERT INTO recoveries (id, webhook_id, since, states, reached, leased_until)";
    let id = Uuid::now_v7();
    system.sql(&format!("{running} VALUES ('{id}', '{webhook}', now(), '{{dropped}}', '{id}', 'infinity')")).await;
    let path = format!("/api/v1/webhooks/{webhook}/recover/");
    let refused = api.post(&path, &since).await;
    contract.check("recoverDeliveries", 409, &refused);
    let location = format!("{path}{id}/");
    assert_eq!((&refused.json()["code"], refused.header("location")), (&json!("recovering"), Some(&*location)));
    system.sql(&format!("UPDATE recoveries SET finished_at = now() WHERE id = '{id}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_calls_answer_is_what_is_described() {
    System::shared(async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let contract = Contract::served(&system.anonymous().await).await;
        let answers = behaviour(|_, nth| Reply::status(if nth == 1 { 503 } else { 200 }).body("caf\u{e9}"));
        let receiver = Receiver::start(&system.ca, answers);
        let new = json!({"name": "A", "url": receiver.url("/in"), "events": ["quote.closed"]});

        let created = api.post("/api/v1/webhooks/", &new).await;
        contract.check("createWebhook", 201, &created);
        let webhook = created.json()["id"].as_str().unwrap().to_owned();
        let path = created.header("location").unwrap();
        assert_eq!(path, format!("/api/v1/webhooks/{webhook}/"));
        contract.check("listWebhooks", 200, &api.get("/api/v1/webhooks/?limit=1").await);
        queries(&api, &contract, path).await;
        contract.check("readWebhook", 200, &api.get(path).await);
        contract.check("changeWebhook", 200, &api.patch(path, &json!({"name": "B"})).await);
        contract.check("listEventTypes", 200, &api.get("/api/v1/event-types/").await);

        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        let delivery = api.newest_in(&webhook, "succeeded").await["id"].as_str().unwrap().to_owned();
        contract.check("testWebhook", 202, &api.ask(&format!("{path}test/")).await);
        contract.check("listDeliveries", 200, &api.get(&format!("{path}deliveries/?limit=1")).await);
        let one = format!("{path}deliveries/{delivery}/");
        contract.check("readDelivery", 200, &api.get(&one).await);
        contract.check("resendDelivery", 202, &api.ask(&format!("{one}resend/")).await);
        history::dropped(&system, tenant, &webhook, 3).await;
        let begun = api.post(&format!("{path}recover/"), &json!({"since": "2026-01-01T00:00:00Z"})).await;
        contract.check("recoverDeliveries", 202, &begun);
        let count = json!({"from": "2026-01-01T00:00:00Z", "count_only": true});
        contract.check("recoverDeliveries", 200, &api.post(&format!("{path}recover/"), &count).await);
        let event = api.delivery(&webhook, &delivery).await["event_id"].as_str().unwrap().to_owned();
        contract.check("readEvent", 200, &api.get(&format!("/api/v1/events/{event}/")).await);
        contract.check("readRecovery", 200, &api.get(begun.header("location").unwrap()).await);

        for (id, call) in [("readStats", "stats/"), ("listNotices", "notices/"), ("listHistory", "history/")] {
            contract.check(id, 200, &api.get(&format!("{path}{call}")).await);
            contract.check(id, 400, &api.get(&format!("{path}{call}?limit=x")).await);
            contract.check(id, 404, &api.get(&format!("/api/v1/webhooks/{}/{call}", Uuid::new_v4())).await);
        }

        let under_way = format!("(webhook_id, leased_until, until) VALUES ('{webhook}', 'infinity', now())");
        system.sql(&format!("INSERT INTO webhook_tasks {under_way}")).await;
        contract.check("resendDelivery", 409, &api.ask(&format!("{one}resend/")).await);
        of_refused_recoveries(&system, &api, &contract, path).await;
        contract.check("cancelDeliveries", 202, &api.ask(&format!("{path}cancel/")).await);

        for (id, path) in [
            ("readOpenApi", "openapi.json"),
            ("readAsyncApi", "asyncapi.yaml"),
            ("readSchema", "schemas/event.schema.json"),
            ("readDocs", "docs/"),
            ("readDocsPage", "docs/webhooks/"),
            ("readDocsStyle", "docs/style.css"),
        ] {
            contract.check(id, 200, &system.anonymous().await.get(&format!("/api/v1/{path}")).await);
        }
        contract.check("readSchema", 404, &system.anonymous().await.get("/api/v1/schemas/other.json").await);
        contract.check("testWebhook", 409, &{
            api.patch(path, &json!({"is_active": false})).await;
            api.ask(&format!("{path}test/")).await
        });
        contract.check("deleteWebhook", 204, &api.delete(path).await);
        contract.check("readWebhook", 404, &api.get(path).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_calls_refuse_is_what_is_described() {
    let settings = vec![("LIMITS__WEBHOOKS_PER_TENANT", "1".to_owned())];
    System::run(Options { settings, ..Options::default() }, async |system| {
        let api = system.admin(Uuid::new_v4()).await;
        let contract = Contract::served(&api).await;
        let list = "/api/v1/webhooks/";
        let new = json!({"name": "A", "url": "https://127.0.0.1:1/", "events": ["quote.closed"]});
        contract.check("createWebhook", 201, &api.post(list, &new).await);
        contract.check("createWebhook", 409, &api.post(list, &new).await);
        contract.check("createWebhook", 400, &api.send("POST", list, &[JSON], "{").await);
        contract.check("createWebhook", 401, &system.anonymous().await.post(list, &new).await);
        let clerk = system.session(Uuid::new_v4(), "sales", Duration::from_secs(60)).await;
        contract.check("createWebhook", 403, &clerk.post(list, &new).await);
        let elsewhere = [JSON, ("origin", "https://elsewhere.example")];
        contract.check("createWebhook", 403, &api.send("POST", list, &elsewhere, new.to_string()).await);
        contract.check("createWebhook", 413, &api.send("POST", list, &[JSON], "[".repeat(65_537)).await);
        contract.check("createWebhook", 415, &api.send("POST", list, &[], new.to_string()).await);
        contract.check("createWebhook", 422, &api.post(list, &json!({"events": ["no"], "colour": 1})).await);
        contract.check("listWebhooks", 400, &api.get(&format!("{list}?limit=0&page=2")).await);

        let one = format!("{list}{}/", Uuid::new_v4());
        let at = |rest: &str| format!("{one}{rest}");
        let delivery = at(&format!("deliveries/{}/", Uuid::new_v4()));
        contract.check("readWebhook", 404, &api.get(&one).await);
        contract.check("changeWebhook", 404, &api.patch(&one, &json!({})).await);
        contract.check("deleteWebhook", 404, &api.delete(&one).await);
        contract.check("testWebhook", 404, &api.ask(&at("test/")).await);
        contract.check("listDeliveries", 404, &api.get(&at("deliveries/")).await);
        contract.check("readDelivery", 404, &api.get(&delivery).await);
        contract.check("resendDelivery", 404, &api.ask(&format!("{delivery}resend/")).await);
        contract.check(
            "recoverDeliveries",
            404,
            &api.post(&at("recover/"), &json!({"since": "2026-01-01T00:00:00Z"})).await,
        );
        contract.check("cancelDeliveries", 404, &api.ask(&at("cancel/")).await);
        contract.check("readEvent", 404, &api.get(&format!("/api/v1/events/{}/", Uuid::new_v4())).await);
        contract.check("readEvent", 404, &api.get("/api/v1/events/E-1/").await);
        contract.check("readRecovery", 404, &api.get(&at(&format!("recover/{}/", Uuid::new_v4()))).await);

        system.stop(Service::Api).await;
        let mut hurried = system.variables.clone();
        hurried.insert("WEBHOOKS__API__RATE_LIMIT_PER_MINUTE".to_owned(), "1".to_owned());
        hurried.insert("WEBHOOKS__API__RATE_LIMIT_BURST".to_owned(), "1".to_owned());
        system.start_with(Service::Api, Settings::from_sources(None, hurried).unwrap()).await;
        let api = Api { address: system.anonymous().await.address, ..api };
        contract.check("listEventTypes", 200, &api.get("/api/v1/event-types/").await);
        contract.check("listEventTypes", 429, &api.get("/api/v1/event-types/").await);
    })
    .await;
}
