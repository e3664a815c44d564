//! The catalogue of event types: schemas and samples against each other.

use std::collections::BTreeSet;

use domain::{Event, EventType, catalogue};
use jsonschema::Validator;
use serde_json::{Value, json};

fn schema(event_type: EventType) -> Value {
    serde_json::from_str(catalogue::schema(event_type)).unwrap()
}

fn sample(event_type: EventType) -> Value {
    serde_json::from_str(catalogue::sample(event_type)).unwrap()
}

fn validator(event_type: EventType) -> Validator {
    jsonschema::options().should_validate_formats(true).build(&schema(event_type)).unwrap()
}

#[test]
fn every_schema_is_valid_and_its_sample_satisfies_it_and_shows_whatever_the_schema_describes() {
    for event_type in EventType::ALL {
        let (schema, sample) = (schema(event_type), sample(event_type));
        jsonschema::meta::validate(&schema).unwrap();
        validator(event_type).validate(&sample).unwrap();
        assert_same_members(&schema, &schema, &sample, event_type.as_str());
    }
}

/// Asserts that each object of a sample has exactly the members that its schema describes.
fn assert_same_members(whole: &Value, schema: &Value, sample: &Value, place: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => whole.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    };
    match sample {
        Value::Object(members) => {
            let described: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(described, members.keys().collect(), "{place}");
            for (name, member) in members {
                let inside = &schema["properties"][name];
                assert!(inside["description"].is_string() || inside["$ref"].is_string(), "{place}.{name}");
                assert_same_members(whole, inside, member, &format!("{place}.{name}"));
            }
        }
        Value::Array(items) => {
            assert!(!items.is_empty(), "{place}");
            for item in items {
                assert_same_members(whole, &schema["items"], item, place);
            }
        }
        _ => {}
    }
}

#[test]
fn what_the_specification_promises_is_required_and_more_is_allowed() {
    for event_type in EventType::ALL {
        let required: &[&str] = match event_type {
            EventType::QuoteClosed => &["line_items", "totals"],
            EventType::DeliveryNoteCreated | EventType::DeliveryNoteMarkedDelivered => {
                &["delivery_note_id", "items", "status"]
            }
            _ => &[],
        };
        assert_eq!(schema(event_type).get("required").unwrap_or(&json!([])), &json!(required), "{event_type}");
        let mut more = sample(event_type);
        more["something_new"] = json!({"a": [1]});
        validator(event_type).validate(&more).unwrap();
        assert!(!validator(event_type).is_valid(&json!([])), "{event_type}");
    }
}

#[test]
fn a_schema_notices_what_is_wrong() {
    for (event_type, member, wrong) in [
        (EventType::QuoteClosed, "/totals/gross", json!(207.06)),
        (EventType::QuoteAccepted, "/accepted_at", json!("yesterday")),
        (EventType::QuoteCancelled, "/line_items/0/unit_price", json!("14,50")),
        (EventType::DeliveryNoteCreated, "/items/0/quantity", json!("12")),
        (EventType::DeliveryNoteMarkedDelivered, "/delivery_address/country", json!("Denmark")),
        (EventType::StockReceiptCompleted, "/items/0/ordered_quantity", json!(-1)),
        (EventType::ReturnNoteCreated, "/items/0/restock", json!("no")),
    ] {
        let mut sample = sample(event_type);
        *sample.pointer_mut(member).unwrap() = wrong;
        assert!(!validator(event_type).is_valid(&sample), "{event_type}{member}");
    }
}

#[test]
fn the_sums_in_the_samples_are_right() {
    let cents = |amount: &Value| amount.as_str().unwrap().replace('.', "").parse::<f64>().unwrap();
    for event_type in [EventType::QuoteClosed, EventType::QuoteAccepted, EventType::QuoteCancelled] {
        let sample = sample(event_type);
        let lines = sample["line_items"].as_array().unwrap();
        for line in lines {
            assert_eq!(line["quantity"].as_f64().unwrap() * cents(&line["unit_price"]), cents(&line["net"]), "{line}");
        }
        let totals = &sample["totals"];
        assert_eq!(lines.iter().map(|line| cents(&line["net"])).sum::<f64>(), cents(&totals["net"]));
        assert_eq!(cents(&totals["net"]) + cents(&totals["tax"]), cents(&totals["gross"]));
    }
}

#[test]
fn a_sample_is_the_data_of_an_event_and_every_description_warns_of_unknown_members() {
    for event_type in EventType::ALL {
        let sample = catalogue::sample(event_type);
        let message = format!(
            r#"{{"event_id":"0192f0c1-0000-7000-8000-000000000001","event_type":"{event_type}",
                "tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00Z","data":{sample}}}"#
        );
        assert_eq!(Event::parse(message.as_bytes(), 262_144).unwrap().data.get(), sample);
        let description = catalogue::description(event_type);
        assert!(description.contains("must tolerate members that it does not know"), "{event_type}");
    }
}
