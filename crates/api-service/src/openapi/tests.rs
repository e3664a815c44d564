use std::collections::BTreeSet;

use actix_web::{App, test::init_service};

use super::*;
use crate::routes::tests::{ROUTES, allowed, limits, routes};

fn paths() -> Map<String, Value> {
    document(&limits())["paths"].as_object().unwrap().clone()
}

#[actix_web::test]
async fn every_route_is_described_and_nothing_else() {
    ROUTES.take();
    init_service(App::new().configure(|config| routes().configure(config))).await;
    let routed: BTreeSet<_> = ROUTES.take().into_iter().map(|path| path.trim_start_matches(BASE).to_owned()).collect();
    assert!(routed.len() > 10, "{routed:?}");
    assert_eq!(routed, paths().keys().cloned().collect());
}

#[actix_web::test]
async fn a_path_takes_the_methods_that_are_described() {
    for (path, calls) in paths() {
        let mut described: BTreeSet<_> = calls.as_object().unwrap().keys().map(|name| name.to_uppercase()).collect();
        if described.contains("GET") {
            described.insert("HEAD".to_owned());
        }
        assert_eq!(allowed(&format!("{BASE}{path}")).await, described, "{path}");
    }
}

#[test]
fn every_example_of_an_error_is_of_its_status_and_code() {
    let document = document(&limits());
    let responses = document["components"]["responses"].as_object().unwrap();
    for (name, response) in responses {
        let examples = response["content"]["application/problem+json"]["examples"].as_object().unwrap();
        assert!(!examples.is_empty(), "{name}");
        for (code, example) in examples {
            assert!(name.starts_with(&example["value"]["status"].to_string()), "{name}");
            assert!(code.starts_with(example["value"]["code"].as_str().unwrap()), "{name}");
        }
    }
    for calls in document["paths"].as_object().unwrap().values() {
        for call in calls.as_object().unwrap().values() {
            for (status, answer) in call["responses"].as_object().unwrap() {
                let name = answer["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/responses/"));
                assert!(name.is_none_or(|name| name.starts_with(status) && responses.contains_key(name)), "{answer}");
            }
        }
    }
}

/// As far as a pattern can say it: up to U+FFFF.
#[test]
fn the_pattern_of_names_excludes_the_characters_that_are_refused() {
    let mut excluded = BTreeSet::new();
    let mut first = None;
    for part in schemas::HIDDEN.split("\\u").skip(1) {
        let code = u32::from_str_radix(part.trim_end_matches('-'), 16).unwrap();
        match part.ends_with('-') {
            true => first = Some(code),
            false => excluded.extend(first.take().unwrap_or(code)..=code),
        }
    }
    let refused = ('\0'..='\u{ffff}').filter(|c| c.is_control() || domain::is_hidden(*c)).map(u32::from);
    assert_eq!(excluded, refused.collect());
}

#[test]
fn limits_are_those_in_force() {
    let mut limits = limits();
    (limits.name_chars, limits.url_chars) = (7, 70);
    let schemas = &document(&limits)["components"]["schemas"];
    for schema in ["NewWebhook", "WebhookChange"] {
        assert_eq!(schemas[schema]["properties"]["name"]["maxLength"], 7);
        assert_eq!(schemas[schema]["properties"]["url"]["maxLength"], 70);
    }
    assert_eq!(document(&limits)["paths"]["/webhooks/"]["get"]["parameters"][0]["schema"]["maximum"], 200);
}

#[test]
fn calls_have_names_of_their_own_and_links_lead_to_them() {
    let calls = calls::all();
    let ids: BTreeSet<_> = calls.iter().map(|call| call.id).collect();
    assert_eq!(ids.len(), calls.len());
    assert!(calls.iter().flat_map(|call| &call.links).all(|(id, _)| ids.contains(id)));
    assert!(calls.iter().all(|call| !call.summary.is_empty() && !call.description.is_empty()));
}
