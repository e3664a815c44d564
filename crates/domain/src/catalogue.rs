//! Describes the seven event types to administrators (specification, section 6).
//!
//! The specification leaves the fields of `data` open, and the service passes them on as they come. The schemas and
//! samples describe what upstream services send. Nothing is checked against them.

use crate::EventType;

/// When the event fires and what its `data` holds, in a paragraph of plain text.
pub const fn description(event_type: EventType) -> &'static str {
    match event_type {
        EventType::QuoteClosed => {
            "A quote was closed: finalized and sent to the client. The data holds the quote's id and number, the client, \
             the line items and the totals at the time of closing. The fields are not fixed: more may be added at any \
             time, so a receiver must tolerate members that it does not know."
        }
        EventType::QuoteAccepted => {
            "A client accepted a quote through the customer portal. The data may hold the quote's id and number, the \
             client, the line items, the totals, and who accepted and when. The fields are not fixed: more may be added \
             at any time, so a receiver must tolerate members that it does not know."
        }
        EventType::QuoteCancelled => {
            "A quote was cancelled. The data may hold the quote's id and number, the client, the line items, the totals, \
             and when and why it was cancelled. The fields are not fixed: more may be added at any time, so a receiver \
             must tolerate members that it does not know."
        }
        EventType::DeliveryNoteCreated => {
            "A delivery note was created. The data holds the delivery note's id, its items and its status, and may hold \
             the recipient and the address. The fields are not fixed: more may be added at any time, so a receiver must \
             tolerate members that it does not know."
        }
        EventType::DeliveryNoteMarkedDelivered => {
            "A delivery note was marked as delivered. The data holds the delivery note's id, its items and its status, \
             and may hold when the goods arrived and who took them. The fields are not fixed: more may be added at any \
             time, so a receiver must tolerate members that it does not know."
        }
        EventType::StockReceiptCompleted => {
            "A stock receipt was completed: goods from a supplier are in stock. The data may hold the stock receipt's id, \
             the supplier, and the items with their quantities and places. The fields are not fixed: more may be added \
             at any time, so a receiver must tolerate members that it does not know."
        }
        EventType::ReturnNoteCreated => {
            "A return note was created: a client sends goods back. The data may hold the return note's id, the delivery \
             note that it refers to, and the items with their quantities and reasons. The fields are not fixed: more may \
             be added at any time, so a receiver must tolerate members that it does not know."
        }
    }
}

/// A JSON Schema (draft 2020-12) of `data`, as JSON text. It allows further members.
pub const fn schema(event_type: EventType) -> &'static str {
    match event_type {
        EventType::QuoteClosed => include_str!("catalogue/quote.closed.schema.json"),
        EventType::QuoteAccepted => include_str!("catalogue/quote.accepted.schema.json"),
        EventType::QuoteCancelled => include_str!("catalogue/quote.cancelled.schema.json"),
        EventType::DeliveryNoteCreated => include_str!("catalogue/delivery_note.created.schema.json"),
        EventType::DeliveryNoteMarkedDelivered => include_str!("catalogue/delivery_note.marked_delivered.schema.json"),
        EventType::StockReceiptCompleted => include_str!("catalogue/stock_receipt.completed.schema.json"),
        EventType::ReturnNoteCreated => include_str!("catalogue/return_note.created.schema.json"),
    }
    .trim_ascii()
}

/// A realistic sample of `data`, as the JSON text of an object.
pub const fn sample(event_type: EventType) -> &'static str {
    match event_type {
        EventType::QuoteClosed => include_str!("catalogue/quote.closed.sample.json"),
        EventType::QuoteAccepted => include_str!("catalogue/quote.accepted.sample.json"),
        EventType::QuoteCancelled => include_str!("catalogue/quote.cancelled.sample.json"),
        EventType::DeliveryNoteCreated => include_str!("catalogue/delivery_note.created.sample.json"),
        EventType::DeliveryNoteMarkedDelivered => include_str!("catalogue/delivery_note.marked_delivered.sample.json"),
        EventType::StockReceiptCompleted => include_str!("catalogue/stock_receipt.completed.sample.json"),
        EventType::ReturnNoteCreated => include_str!("catalogue/return_note.created.sample.json"),
    }
    .trim_ascii()
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
