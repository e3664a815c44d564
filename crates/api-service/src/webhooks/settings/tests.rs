use domain::AddressPolicy;
use serde_json::{Value, json};

use super::*;

const RULES: Rules = Rules { name_chars: 10, url_chars: 40, address_policy: AddressPolicy::allowing(Vec::new()) };

fn read(body: &str) -> Checked<WebhookSettings> {
    Registration::read(serde_json::from_str(body).unwrap(), &RULES).map(|new| new.settings)
}

fn changed(body: &str) -> Checked<WebhookSettings> {
    let mut settings = WebhookSettings::default();
    let members: Members = serde_json::from_str(body).unwrap();
    change(&members, &RULES, None, &mut settings).map(|_| settings)
}

fn violations(body: &str) -> Vec<(String, &'static str)> {
    read(body).unwrap_err().into_iter().map(|violation| (violation.field, violation.code)).collect()
}

/// A valid body, except for one field.
fn with(field: &str, value: &Value) -> String {
    let mut body = json!({"name": "orders", "url": "https://example.com/", "events": ["quote.closed"]});
    body[field] = value.clone();
    body.to_string()
}

fn only(field: &str, code: &'static str) -> Vec<(String, &'static str)> {
    vec![(field.to_owned(), code)]
}

#[test]
fn a_good_registration_is_taken_as_it_was_written_but_for_blanks_around_its_name() {
    let all = EventType::ALL.map(EventType::as_str);
    let body = json!({"events": all, "url": "HTTPS://Example.com?x", "name": " Zoë 🚚\u{3000}"});
    let registration = read(&body.to_string()).unwrap();
    assert_eq!(registration.name, "Zoë 🚚");
    assert_eq!(registration.url, "HTTPS://Example.com?x");
    assert_eq!(registration.events, EventType::ALL);
    assert!(registration.is_active && registration.description.is_empty());
}

#[test]
fn descriptions_may_be_empty_and_of_several_lines() {
    let longest = "ä".repeat(1_000);
    for (good, kept) in [("", ""), ("a\r\n\tb\rc\n", "a\n\tb\nc\n"), (&longest, &longest)] {
        assert_eq!(read(&with("description", &json!(good))).unwrap().description, kept);
    }
    for (text, code) in [
        (json!("ä".repeat(1_001)), "too_long"),
        (json!("a\u{1b}[2J"), "control_character"),
        (json!("a\u{202e}b"), "hidden_character"),
        (json!(null), "wrong_type"),
    ] {
        assert_eq!(violations(&with("description", &text)), only("description", code), "{text}");
    }
}

#[test]
fn external_ids_are_checked_as_names_are() {
    for (good, kept) in [(json!("erp-1"), Some("erp-1")), (json!(null), None)] {
        assert_eq!(read(&with("external_id", &good)).unwrap().external_id.as_deref(), kept);
    }
    for (id, code) in [
        (json!(""), "blank"),
        (json!("a".repeat(256)), "too_long"),
        (json!("a\nb"), "control_character"),
        (json!("a\u{202e}b"), "hidden_character"),
        (json!(7), "wrong_type"),
    ] {
        assert_eq!(violations(&with("external_id", &id)), only("external_id", code), "{id}");
    }
    assert!(!read(&with("is_active", &json!(false))).unwrap().is_active);
}

#[test]
fn names_are_not_blank_not_long_and_without_characters_that_nobody_sees() {
    for (name, code) in [
        (json!(""), "blank"),
        (json!(" \u{a0}\u{2003}"), "blank"),
        (json!("\n"), "blank"),
        (json!("ä".repeat(11)), "too_long"),
        (json!("a\u{0}b"), "control_character"),
        (json!("a\u{85}b"), "control_character"),
        (json!("\u{200d}\u{fe0f}"), "blank"),
        (json!("\u{feff}\u{3164}"), "blank"),
        (json!("a\u{202e}b"), "hidden_character"),
        (json!("a\u{200b}"), "hidden_character"),
        (json!("a\u{2028}b"), "hidden_character"),
        (json!("a\u{2067}b"), "hidden_character"),
        (json!("a\u{e0041}b"), "hidden_character"),
        (json!("Or\u{200d}ders"), "hidden_character"),
        (json!(" Orders \n"), "control_character"),
        (json!(null), "wrong_type"),
        (json!(7), "wrong_type"),
        (json!(["a"]), "wrong_type"),
    ] {
        assert_eq!(violations(&with("name", &name)), only("name", code), "{name}");
    }
    // Characters are counted, not bytes. Persian needs joiners.
    for good in [&*"ä".repeat(10), "می\u{200c}خواهم"] {
        assert_eq!(read(&with("name", &json!(good))).unwrap().name, good);
    }
    let hidden = read(&with("name", &json!("Or\u{200d}ders"))).unwrap_err().remove(0);
    assert!(hidden.message.contains("U+200D (character 3)"), "{}", hidden.message);
}

#[test]
fn urls_are_judged_by_the_domain() {
    for (url, code) in [
        (json!("http://example.com/"), "not_https"),
        (json!("example.com"), "invalid_url"),
        (json!("https://u:p@example.com/"), "credentials_in_url"),
        (json!("https://127.0.0.1/"), "refused_address"),
        (json!(format!("https://example.com/{}", "a".repeat(21))), "too_long"),
        (json!("https://example.com/\u{202e}"), "hidden_character"),
        (json!({}), "wrong_type"),
    ] {
        assert_eq!(violations(&with("url", &url)), only("url", code), "{url}");
    }
}

#[test]
fn events_are_some_of_the_seven_each_once() {
    for (events, expected) in [
        (json!([]), only("events", "empty")),
        (json!("quote.closed"), only("events", "wrong_type")),
        (json!(["quote.closed", "quote.opened"]), only("events[1]", "unknown_event_type")),
        (json!(["quote.closed", "quote.accepted", "quote.closed"]), only("events[2]", "repeated_event_type")),
        (json!(["Quote.Closed"]), only("events[0]", "unknown_event_type")),
        (json!([1, "quote.closed", null]), [only("events[0]", "wrong_type"), only("events[2]", "wrong_type")].concat()),
    ] {
        assert_eq!(violations(&with("events", &events)), expected, "{events}");
    }
}

#[test]
fn all_faulty_fields_are_reported_at_once() {
    assert_eq!(
        violations(r#"{"secret": 1, "name": " ", "url": "ftp://x/", "events": ["?"], "secret": 2, "Name": ""}"#),
        [
            ("name".to_owned(), "blank"),
            ("url".to_owned(), "not_https"),
            ("events[0]".to_owned(), "unknown_event_type"),
            ("secret".to_owned(), "unknown_field"),
            ("Name".to_owned(), "unknown_field"),
        ]
    );
    assert_eq!(violations("{}"), ["name", "url", "events"].map(|field| (field.to_owned(), "required")));
}

#[test]
fn a_field_given_twice_is_refused_even_if_both_are_the_same() {
    let body = r#"{"name": "a", "url": "https://example.com/", "events": ["quote.closed"], "name": "a"}"#;
    assert_eq!(violations(body), only("name", "repeated_field"));
}

#[test]
fn a_change_is_what_is_given_and_nothing_else() {
    assert_eq!(changed("{}").unwrap(), WebhookSettings::default());
    let url = changed(r#"{"url": "https://example.com/?a"}"#).unwrap();
    assert_eq!(url, WebhookSettings { url: "https://example.com/?a".into(), ..Default::default() });
    let activated = changed(r#"{"is_active": true, "events": ["quote.closed"]}"#).unwrap();
    let expected = WebhookSettings { is_active: true, events: vec![EventType::QuoteClosed], ..Default::default() };
    assert_eq!(activated, expected);
}

#[test]
fn a_change_has_the_rules_of_a_registration() {
    let body = r#"{"name": "", "url": null, "events": [], "is_active": "yes", "colour": 1, "is_active": false}"#;
    let violations: Vec<_> =
        changed(body).unwrap_err().into_iter().map(|violation| (violation.field, violation.code)).collect();
    let expected = [
        ("name", "blank"),
        ("url", "wrong_type"),
        ("events", "empty"),
        ("is_active", "repeated_field"),
        ("colour", "unknown_field"),
    ];
    assert_eq!(violations, expected.map(|(field, code)| (field.to_owned(), code)));
    for value in ["null", "0", "\"true\"", "[]"] {
        let violations = changed(&format!(r#"{{"is_active": {value}}}"#)).unwrap_err();
        assert_eq!(violations[0].code, "wrong_type", "{value}");
    }
}
