//! Describes the seven event types to administrators (specification, section 6).
//!
//! The specification leaves the fields of `data` open, and the service passes them on as they come. The schemas and
//! samples describe what upstream services send. Nothing is checked against them.

use crate::EventType;

/// The text of this kind about an event type: a file.
macro_rules! text {
    ($event_type:ident, $kind:literal) => {
        match $event_type {
            EventType::QuoteClosed => include_str!(concat!("catalogue/quote.closed.", $kind)),
            EventType::QuoteAccepted => include_str!(concat!("catalogue/quote.accepted.", $kind)),
            EventType::QuoteCancelled => include_str!(concat!("catalogue/quote.cancelled.", $kind)),
            EventType::DeliveryNoteCreated => include_str!(concat!("catalogue/delivery_note.created.", $kind)),
            EventType::DeliveryNoteMarkedDelivered => {
                include_str!(concat!("catalogue/delivery_note.marked_delivered.", $kind))
            }
            EventType::StockReceiptCompleted => include_str!(concat!("catalogue/stock_receipt.completed.", $kind)),
            EventType::ReturnNoteCreated => include_str!(concat!("catalogue/return_note.created.", $kind)),
        }
        .trim_ascii()
    };
}

/// When the event fires and what its `data` holds, in a paragraph of plain text.
pub const fn description(event_type: EventType) -> &'static str {
    text!(event_type, "description.txt")
}

/// A JSON Schema (draft 2020-12) of `data`, as JSON text. It allows further members.
pub const fn schema(event_type: EventType) -> &'static str {
    text!(event_type, "schema.json")
}

/// A realistic sample of `data`, as the JSON text of an object.
pub const fn sample(event_type: EventType) -> &'static str {
    text!(event_type, "sample.json")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Map, Value};

    use super::*;

    fn object(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap_or_else(|fault| panic!("{fault}: {json}"))
    }

    #[test]
    fn each_event_type_has_a_description_of_its_own_in_whole_sentences() {
        let descriptions: HashSet<_> = EventType::ALL.into_iter().map(description).collect();
        assert_eq!(descriptions.len(), EventType::ALL.len());
        for text in descriptions {
            assert!(text.starts_with("A ") && text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }

    #[test]
    fn each_event_type_has_a_sample_and_a_schema_of_its_own_that_allows_further_members() {
        for event_type in EventType::ALL {
            let schema = object(schema(event_type));
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert_eq!(schema["title"], format!("Data of {event_type}"));
            assert_eq!(schema["additionalProperties"], true, "{event_type}");
            assert!(object(sample(event_type)).len() > 1, "{event_type}");
        }
    }
}
