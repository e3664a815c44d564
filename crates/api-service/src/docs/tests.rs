use std::{
    collections::{BTreeMap, BTreeSet},
    iter::successors,
    time::Duration,
};

use actix_web::{App, test::init_service};
use domain::{DeliveryId, DeliveryState, EventType, NoticeType, OutcomeClass, WebhookId, catalogue};
use ledger::{Absence, Action, ApiKey, DeliveryFilter, LedgerError, Recoverable, WebhookFilter};

use super::*;
use crate::{
    http::{
        self, Cursors, MAX_LISTED_VIOLATIONS, Parameters, Query, Violation,
        json::BODY_TIMEOUT,
        list::{DEFAULT_LIMIT, MAX_LIMIT, MAX_QUERY_BYTES},
    },
    routes::tests::{ADMIN_COOKIE, JSON, ROUTES, allowed, ask, limits, path_of, routes},
    sessions::cross_site,
    state::most,
    stats::period::StatsQuery,
};

const BASE_PATH: &str = "/api/v1";

fn document_now() -> Value {
    document(&limits(), most(&limits()))
}

/// A call of the document.
struct Call {
    path: String,
    method: String,
    about: Value,
}

fn calls(document: &Value) -> Vec<Call> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, calls): (&String, &Value)| {
        let of = |(method, about): (&String, &Value)| Call {
            path: path.clone(),
            method: method.to_uppercase(),
            about: about.clone(),
        };
        calls.as_object().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

fn resolve<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    part["$ref"].as_str().map_or(part, |name| document.pointer(name.trim_start_matches('#')).unwrap())
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn the_committed_document_has_this_version_and_the_default_limits() {
    let committed: Value = serde_json::from_str(include_str!("../../../../proto-schemas/openapi.json")).unwrap();
    assert!(document_now() == committed, "the service puts in other values: edit proto-schemas/openapi.json");
}

#[test]
fn limits_are_those_in_force() {
    let mut limits = limits();
    (limits.name_chars, limits.url_chars) = (7, 70);
    (limits.webhooks_per_tenant, limits.request_body_bytes) = (3, 777);
    let components = &document(&limits, most(&limits))["components"];
    assert_eq!(components["schemas"]["WebhookName"]["maxLength"], 7);
    assert_eq!(components["schemas"]["WebhookUrl"]["maxLength"], 70);
    for (example, limit) in [
        ("too_many_webhooks", " 3 webhooks"),
        ("too_many_deleted_webhooks", " 30 webhooks"),
        ("body_too_large", " 777 bytes"),
    ] {
        let detail = components["examples"][example]["value"]["detail"].as_str().unwrap();
        assert!(detail.contains(limit), "{detail}");
    }
}

#[actix_web::test]
async fn every_route_is_described_and_nothing_else() {
    ROUTES.take();
    init_service(App::new().configure(|config| routes().configure(config))).await;
    let routed: BTreeSet<_> =
        ROUTES.take().into_iter().map(|path| path.trim_start_matches(BASE_PATH).to_owned()).collect();
    assert!(routed.len() > 10, "{routed:?}");
    assert_eq!(routed, calls(&document_now()).into_iter().map(|call| call.path).collect());
}

#[actix_web::test]
async fn a_path_takes_the_methods_that_are_described() {
    let mut described = BTreeMap::<_, BTreeSet<_>>::new();
    for call in calls(&document_now()) {
        let methods = described.entry(call.path).or_default();
        if call.method == "GET" {
            methods.insert("HEAD".to_owned());
        }
        methods.insert(call.method);
    }
    for (path, methods) in described {
        assert_eq!(allowed(&format!("{BASE_PATH}{path}")).await, methods, "{path}");
    }
}

#[test]
fn calls_have_names_of_their_own_and_links_and_references_lead_somewhere() {
    let document = document_now();
    let calls = calls(&document);
    let ids: BTreeSet<_> = calls.iter().map(|call| call.about["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), calls.len());
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    for Call { about, .. } in &calls {
        assert!(about["summary"].is_string() && about["description"].is_string(), "{about}");
        assert!(tags.contains(about["tags"][0].as_str().unwrap()), "{about}");
        let links = members(&about["responses"]).flat_map(|(_, answer)| members(&answer["links"]));
        assert!(links.map(|(_, link)| link["operationId"].as_str().unwrap()).all(|id| ids.contains(id)), "{about}");
    }
    let text = document.to_string();
    for rest in text.split(r##""$ref":"#"##).skip(1) {
        assert!(document.pointer(rest.split('"').next().unwrap()).is_some(), "{rest:.80}");
    }
    for (kind, parts) in members(&document["components"]).filter(|(kind, _)| *kind != "securitySchemes") {
        for (name, _) in members(parts).filter(|(name, _)| !name.ends_with("Data") && *name != METHOD_NOT_ALLOWED) {
            assert!(text.contains(&format!("#/components/{kind}/{name}\"")), "{name} is unused");
        }
    }
}

/// No described call has this answer, but its path can.
const METHOD_NOT_ALLOWED: &str = "405.method_not_allowed";

/// The next error, with the values of its example. Exhaustive, so that a new error is described.
fn next(error: &ApiError) -> Option<ApiError> {
    const WEBHOOK: &str = "0199a3c2-7d54-7b1e-9c3a-5f0d2e8b4a11";
    const RECOVERY: &str =
        "/api/v1/webhooks/0199a3c2-7d54-7b1e-9c3a-5f0d2e8b4a11/recover/019cab10-22f0-7c44-8f4e-0a6d1b9e7c55/";
    let timeout = LedgerError::Timeout(Duration::ZERO);
    let most = most(&limits());
    Some(match error {
        ApiError::NotLoggedIn => ApiError::UnknownKey,
        ApiError::UnknownKey => ApiError::SessionRequired,
        ApiError::SessionRequired => ApiError::NotAnAdmin,
        ApiError::NotAnAdmin => cross_site::of_another_site("cross-site"),
        ApiError::CrossSite(..) => ApiError::NotFound,
        ApiError::NotFound => ApiError::UnknownEvent,
        ApiError::UnknownEvent => ApiError::MethodNotAllowed("GET, HEAD"),
        ApiError::MethodNotAllowed(_) => ApiError::BodyTooSlow(BODY_TIMEOUT),
        ApiError::BodyTooSlow(_) => ApiError::TooManyWebhooks(most.webhooks),
        ApiError::TooManyWebhooks(_) => ApiError::TooManyDeleted(most.deleted),
        ApiError::TooManyDeleted(_) => ApiError::TooManyKeys(ApiKey::MAX_PER_TENANT),
        ApiError::TooManyKeys(_) => ApiError::StaleForm,
        ApiError::StaleForm => ApiError::RegisteredBefore(WEBHOOK.parse().unwrap()),
        ApiError::RegisteredBefore(_) => ApiError::CreatedBefore,
        ApiError::CreatedBefore => ApiError::ExternalIdTaken,
        ApiError::ExternalIdTaken => ApiError::ChangedMeanwhile,
        ApiError::ChangedMeanwhile => ApiError::TooOld,
        ApiError::TooOld => ApiError::BodyExpired,
        ApiError::BodyExpired => ApiError::TooOften,
        ApiError::TooOften => ApiError::Cancelling,
        ApiError::Cancelling => ApiError::Recovering(RECOVERY.to_owned()),
        ApiError::Recovering(_) => ApiError::WebhookInactive,
        ApiError::WebhookInactive => ApiError::BodyTooLarge(limits().request_body_bytes),
        ApiError::BodyTooLarge(_) => ApiError::MediaType,
        ApiError::MediaType => ApiError::MalformedJson(serde_json::from_str::<Value>("{\"name\": }").unwrap_err()),
        ApiError::MalformedJson(_) => ApiError::IncompleteBody,
        ApiError::IncompleteBody => ApiError::QueryTooLong(MAX_QUERY_BYTES),
        ApiError::QueryTooLong(_) => {
            let violation = Violation::new("limit", "invalid_limit", "must be a whole number from 1 to 200");
            ApiError::Parameters(vec![violation])
        }
        ApiError::Parameters(_) => {
            let message = "must be 1 to 255 visible characters of ASCII";
            ApiError::Headers(vec![Violation::new("Idempotency-Key", "invalid_idempotency_key", message)])
        }
        ApiError::Headers(_) => ApiError::Fields(vec![Violation::new("colour", "unknown_field", "is unknown here")]),
        ApiError::Fields(_) => {
            let message = "must be given again, or removed: the URL leads to another scheme, host or port";
            ApiError::HeadersRequired(vec![Violation::new("headers.Authorization", "headers_required", message)])
        }
        ApiError::HeadersRequired(_) => ApiError::TooManyRequests(Duration::from_secs(2)),
        ApiError::TooManyRequests(_) => ApiError::Unavailable(timeout),
        ApiError::Unavailable(_) => ApiError::Unconfirmed(timeout),
        ApiError::Unconfirmed(_) => ApiError::Crowded,
        ApiError::Crowded => ApiError::Searching,
        ApiError::Searching => ApiError::OfLaterVersion(LedgerError::Unreadable { column: "events.body" }),
        ApiError::OfLaterVersion(_) => ApiError::SessionUnknown("an example".into()),
        ApiError::SessionUnknown(_) => ApiError::unexpected("an example"),
        ApiError::Unexpected(_) => return None,
    })
}

/// The headers of every answer to a session's request. 429 and the successes describe them.
const RATE_LIMIT: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];

/// The codes of an answer, which are in its name after the status.
fn codes(answer: &Value) -> Vec<&str> {
    let name = answer["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/responses/"));
    name.into_iter().flat_map(|name| name.split('.').skip(1)).collect()
}

#[test]
fn errors_are_described_as_they_are_answered() {
    let document = document_now();
    let components = &document["components"];
    // The console's forms alone are answered with these two.
    let errors: Vec<_> = successors(Some(ApiError::NotLoggedIn), next)
        .filter(|error| !matches!(error, ApiError::StaleForm | ApiError::CreatedBefore))
        .collect();
    let mut shown = BTreeSet::new();
    for (name, response) in members(&components["responses"]) {
        let mut expected = Vec::new();
        let mut headers = BTreeSet::from(["x-request-id".to_owned()]);
        for (_, example) in members(&response["content"]["application/problem+json"]["examples"]) {
            let value = &resolve(&document, example)["value"];
            let is_shown = |error: &&ApiError| {
                let answered = http::problem::body::text(error, value["request_id"].as_str().unwrap());
                serde_json::from_str::<Value>(&answered).unwrap() == *value
            };
            let error = errors.iter().find(is_shown).unwrap_or_else(|| panic!("no error is answered with {value:#}"));
            let (status, code) = error.kind();
            assert!(response["description"].as_str().unwrap().contains(&format!("`{code}`: ")), "{name}");
            expected.push(if expected.is_empty() { format!("{}.{code}", status.as_str()) } else { code.to_owned() });
            headers.extend(error.header().map(|(name, _)| name.to_string()));
            if matches!(error, ApiError::TooManyRequests(_)) {
                headers.extend(RATE_LIMIT.map(str::to_owned));
            }
            shown.insert(code);
        }
        assert_eq!(*name, expected.join("."));
        let described = members(&response["headers"]).map(|(name, _)| name.to_lowercase());
        assert_eq!(described.collect::<BTreeSet<_>>(), headers, "{name}");
    }
    assert_eq!(shown, errors.iter().map(|error| error.kind().1).collect());
    let stated = texts(&components["schemas"]["Problem"]["properties"]["code"]["x-extensible-enum"]);
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), stated);
}

#[test]
fn a_call_is_refused_as_its_session_method_path_and_content_require() {
    let document = document_now();
    for Call { path, method, about } in calls(&document) {
        let mut expected = Vec::new();
        let is_public = about["security"] == json!([]);
        if !is_public {
            expected.extend(["not_logged_in", "unknown_key", "not_an_admin", "too_many_requests", "internal_error"]);
            expected.extend(["unavailable", "busy", "cross_site"]);
        }
        if about["security"] == json!([{"session": []}]) {
            expected.push("session_required");
        }
        if path.contains('{') {
            expected.push("not_found");
        }
        if method != "GET" {
            expected.push("unconfirmed");
        }
        let mut parameters = about["parameters"].as_array().into_iter().flatten();
        if parameters.any(|parameter| resolve(&document, parameter)["in"] == "query") {
            expected.extend(["invalid_parameters", "query_too_long"]);
        }
        if about["operationId"] == "changeWebhook" {
            expected.push("headers_required");
        }
        if about["requestBody"].is_object() {
            expected.extend(["malformed_json", "incomplete_body", "body_too_slow", "body_too_large"]);
            expected.extend(["unsupported_media_type", "validation_failed"]);
        }
        let takes = |name: &str| {
            let mut parameters = about["parameters"].as_array().into_iter().flatten();
            parameters.any(|parameter| resolve(&document, parameter)["name"] == name)
        };
        if takes("Idempotency-Key") {
            expected.push("invalid_headers");
        }
        if takes("If-Match") {
            expected.push("changed_meanwhile");
        }
        let mut others = Vec::new();
        for (status, answer) in members(&about["responses"]) {
            let described: Vec<_> = members(&answer["headers"]).map(|(name, _)| name.to_lowercase()).collect();
            let is_success = status.starts_with('2') && !is_public;
            let is_limited = RATE_LIMIT.iter().all(|name| described.iter().any(|described| described == name));
            assert!(is_limited || !is_success, "{method} {path} {status} {described:?}");
            for code in codes(answer) {
                assert!(answer["$ref"].as_str().unwrap().contains(&format!("/{status}.")), "{method} {path}: {answer}");
                match expected.iter().position(|expected| *expected == code) {
                    Some(at) => _ = expected.swap_remove(at),
                    None => others.push((status.as_str(), code)),
                }
            }
        }
        assert!(expected.is_empty(), "{method} {path} lacks {expected:?}");
        assert!(others.iter().all(|(status, code)| *status == "409" || *code == "unknown_event"), "{others:?}");
    }
}

#[test]
fn values_of_closed_sets_are_those_of_the_code() {
    let document = document_now();
    let values = |place: &str| texts(document.pointer(place).unwrap_or_else(|| panic!("no {place}")));
    let recoverable = Recoverable::ALL.map(Recoverable::as_str).to_vec();
    let of_webhooks = NoticeType::ALL.map(NoticeType::as_str).into_iter().filter(|name| name.starts_with("webhook."));
    let of_webhooks: Vec<_> = of_webhooks.collect();
    for (place, expected) in [
        ("EventType/enum", EventType::ALL.map(EventType::as_str).to_vec()),
        ("DeliveryState/x-extensible-enum", DeliveryState::ALL.map(DeliveryState::as_str).to_vec()),
        ("Absence/x-extensible-enum", Absence::ALL.map(Absence::as_str).to_vec()),
        ("Attempt/properties/outcome/x-extensible-enum", OutcomeClass::ALL.map(OutcomeClass::as_str).to_vec()),
        ("LastAttempt/properties/outcome/x-extensible-enum", OutcomeClass::ALL.map(OutcomeClass::as_str).to_vec()),
        ("OutcomeCounts/required", OutcomeClass::ALL.map(OutcomeClass::as_str).to_vec()),
        // The API shows those about webhooks.
        ("Notice/properties/type/x-extensible-enum", of_webhooks),
        ("HistoryEntry/properties/action/x-extensible-enum", Action::ALL.map(Action::as_str).to_vec()),
        ("NewRecovery/properties/states/items/enum", recoverable.clone()),
        ("Recovery/properties/states/items/enum", recoverable),
    ] {
        assert_eq!(values(&format!("/components/schemas/{place}")), expected, "{place}");
    }
    let states = DeliveryState::ALL.map(DeliveryState::as_str);
    assert_eq!(values("/components/parameters/DeliveryStates/schema/items/enum"), states);
    let outcomes = OutcomeClass::ALL.map(OutcomeClass::as_str);
    assert_eq!(values("/components/parameters/LastOutcome/schema/enum"), outcomes);
    assert_eq!(values("/paths/~1schemas~1{file}/get/parameters/0/schema/enum"), SCHEMAS.map(|(file, _)| file));
    let components = &document["components"];
    assert_eq!(components["schemas"]["Problem"]["properties"]["errors"]["maxItems"], MAX_LISTED_VIOLATIONS);
    let expected = json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT});
    assert_eq!(components["parameters"]["Limit"]["schema"], expected);
}

#[test]
fn parameters_of_query_strings_are_those_that_are_read() {
    let document = document_now();
    let lists = Query::<WebhookId>::read("?", Cursors::of("/")).err();
    let webhooks = Query::<WebhookId, WebhookFilter>::read("?", Cursors::of("/")).err();
    let log = Query::<DeliveryId, DeliveryFilter>::read("?", Cursors::of("/")).err();
    let stats = Parameters::<StatsQuery>::read("?").err();
    for Call { about, .. } in calls(&document) {
        let parameters = about["parameters"].as_array().into_iter().flatten();
        let parameters = parameters.map(|parameter| resolve(&document, parameter));
        let names = parameters.filter(|parameter| parameter["in"] == "query").map(|one| one["name"].as_str().unwrap());
        let names: Vec<_> = names.collect();
        let id = about["operationId"].as_str().unwrap();
        let violations = match id {
            "listWebhooks" => &webhooks,
            "listKeys" | "listRecoveries" | "listNotices" | "listHistory" | "listTenantHistory" => &lists,
            "listDeliveries" | "listTenantDeliveries" => &log,
            "readStats" => &stats,
            _ => &None,
        };
        let read = violations.as_ref().map(|violations| violations[0].message.rsplit_once(" are ").unwrap().1);
        assert_eq!(names.join(", "), read.unwrap_or_default().replace(" and ", ", "), "{id}");
    }
}

#[actix_web::test]
async fn described_bodies_are_accepted_and_other_members_are_refused() {
    let document = document_now();
    let mut tried = 0;
    for Call { path, method, about } in calls(&document) {
        let Some(body) = about["requestBody"]["content"].get("application/json") else { continue };
        let send = async |body: &Value| {
            let path = path_of(&format!("{BASE_PATH}{path}"));
            ask(method.parse().unwrap(), &path, &[ADMIN_COOKIE, JSON], body.to_string().leak()).await
        };
        // The fields are read first. Then the database is unavailable.
        for (name, example) in members(&body["examples"]) {
            assert_eq!(send(&example["value"]).await.code(), (503, "unavailable"), "{method} {path} {name}");
        }
        let schema = resolve(&document, &body["schema"]);
        assert_eq!(schema["additionalProperties"], false, "{method} {path}");
        let mut all: Value = members(&schema["properties"]).map(|(name, _)| (name.clone(), Value::Null)).collect();
        all["colour"] = Value::Null;
        assert_eq!(send(&all).await.fields("unknown_field"), ["colour"], "{method} {path}");
        if schema.get("allOf").is_none() {
            let required = schema.get("required").map(texts).unwrap_or_default();
            assert_eq!(send(&json!({})).await.fields("required"), required, "{method} {path}");
        }
        tried += 1;
    }
    assert_eq!(tried, 7);
}

/// Later versions may add members to an answer. A problem leaves out members that say nothing.
#[test]
fn an_answer_has_every_member() {
    let document = document_now();
    for (name, schema) in members(&document["components"]["schemas"]) {
        if name.ends_with("Data") || name == "Problem" || schema["additionalProperties"] == false {
            continue;
        }
        for part in schema["allOf"].as_array().into_iter().flatten().chain([schema]) {
            let members: Vec<_> = members(&part["properties"]).map(|(name, _)| name.as_str()).collect();
            assert_eq!(part.get("required").map(texts).unwrap_or_default(), members, "{name}");
        }
    }
}

/// As far as a pattern can say it: up to U+FFFF.
#[test]
fn the_pattern_of_names_excludes_the_characters_that_are_refused() {
    let document = document_now();
    let pattern = document["components"]["schemas"]["WebhookName"]["pattern"].as_str().unwrap();
    let hidden = pattern.strip_prefix("^[^").unwrap().split(']').next().unwrap();
    assert!(pattern.ends_with(&format!("{hidden}][^{hidden}]*$")), "{pattern}");
    let mut excluded = BTreeSet::new();
    let mut first = None;
    for part in hidden.split("\\u").skip(1) {
        let code = u32::from_str_radix(part.trim_end_matches('-'), 16).unwrap();
        match part.ends_with('-') {
            true => first = Some(code),
            false => excluded.extend(first.take().unwrap_or(code)..=code),
        }
    }
    let refused = ('\0'..='\u{ffff}').filter(|c| c.is_control() || domain::is_hidden(*c)).map(u32::from);
    assert_eq!(excluded, refused.collect());
}

/// A schema with what its references lead to.
fn inlined(whole: &Value, schema: &Value) -> Value {
    match schema {
        Value::Object(_) => {
            let target = resolve(whole, schema);
            let own = members(schema).filter(|(name, _)| *name != "$ref");
            let referred = members(target).filter(|_| schema.get("$ref").is_some());
            referred.chain(own).map(|(name, member)| (name.clone(), inlined(whole, member))).collect()
        }
        Value::Array(items) => items.iter().map(|item| inlined(whole, item)).collect(),
        other => other.clone(),
    }
}

/// Generators of clients follow references within the document only, so it has the catalogue's schemas too.
#[test]
fn schemas_of_data_are_those_of_the_catalogue() {
    let document = document_now();
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    for event_type in EventType::ALL {
        let name = event_type.as_str().split(['.', '_']).map(capital).collect::<String>() + "Data";
        let catalogue: Value = serde_json::from_str(catalogue::schema(event_type)).unwrap();
        let mut expected = inlined(&catalogue, &catalogue);
        for name in ["$schema", "title", "$defs"] {
            expected.as_object_mut().unwrap().remove(name);
        }
        assert_eq!(inlined(&document, &document["components"]["schemas"][&name]), expected, "{name}");
    }
}

#[test]
fn every_reference_of_asyncapi_into_a_file_leads_to_a_schema_that_is_served() {
    let asyncapi = asyncapi_text();
    let references: Vec<_> = asyncapi.split("$ref: './").skip(1).map(|rest| rest.split('\'').next()).collect();
    let served = SCHEMAS.map(|(name, _)| format!("schemas/{name}"));
    assert_eq!(references.len(), served.len());
    for reference in references {
        assert!(served.iter().any(|served| Some(served.as_str()) == reference), "{reference:?}");
    }
}

/// The values of an attribute in a page.
fn attributes<'a>(html: &'a str, name: &str) -> BTreeSet<&'a str> {
    html.split(&format!(" {name}=\"")).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

/// The pages by their names, which are empty for the overview.
fn pages(has_console: bool) -> BTreeMap<String, String> {
    let files = Docs::new(&limits(), most(&limits()), has_console).0.into_iter().filter(|(_, (kind, _))| *kind == HTML);
    let name = |path: &str| path.trim_start_matches("docs").trim_start_matches('/').to_owned();
    files.map(|(path, (_, html))| (name(&path), String::from_utf8(html.to_vec()).unwrap())).collect()
}

#[test]
fn the_pages_are_small_their_links_lead_somewhere_and_a_keyboard_reaches_their_code() {
    let named = pages(true);
    let texts: BTreeMap<_, _> = named.iter().map(|(name, html)| (name.as_str(), html.as_str())).collect();
    let tags = document_now()["tags"].as_array().unwrap().len();
    assert_eq!(texts.len(), tags + 2, "a page for each tag, the overview and the schemas");
    for (name, html) in &texts {
        assert!(html.len() < 100_000, "{name:?} has {} bytes", html.len());
        assert!(html.contains("<pre tabindex=\"0\">") == (*name != "schemas") && !html.contains("<pre>"), "{name:?}");
        for href in attributes(html, "href") {
            let (path, place) = href.split_once('#').unwrap_or((href, ""));
            let target = match path.strip_prefix("/api/v1/docs/") {
                None if path.is_empty() => html,
                None | Some("style.css") => continue,
                Some(path) => texts.get(path.trim_end_matches('/')).unwrap_or_else(|| panic!("{name:?}: no {href}")),
            };
            assert!(place.is_empty() || attributes(target, "id").contains(place), "{name:?}: no {href}");
        }
    }
    let back = |has_console| pages(has_console).values().filter(|html| html.contains("href=\"/console/\"")).count();
    assert_eq!((back(true), back(false)), (texts.len(), 0), "a way back to the console, if there is one");
}
