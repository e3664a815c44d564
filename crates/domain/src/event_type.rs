//! The seven event types (specification, section 6).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use strum::{Display, EnumString, IntoStaticStr};

/// What happened in the tenant's account. There are exactly seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumString, IntoStaticStr)]
#[strum(parse_err_fn = unknown, parse_err_ty = UnknownEventType)]
pub enum EventType {
    /// A quote is closed (finalized and sent to the client).
    #[strum(serialize = "quote.closed")]
    QuoteClosed,
    /// A client accepts a quote through the customer portal.
    #[strum(serialize = "quote.accepted")]
    QuoteAccepted,
    /// A quote is cancelled.
    #[strum(serialize = "quote.cancelled")]
    QuoteCancelled,
    /// A delivery note is created.
    #[strum(serialize = "delivery_note.created")]
    DeliveryNoteCreated,
    /// A delivery note is marked as delivered.
    #[strum(serialize = "delivery_note.marked_delivered")]
    DeliveryNoteMarkedDelivered,
    /// A stock receipt is completed.
    #[strum(serialize = "stock_receipt.completed")]
    StockReceiptCompleted,
    /// A return note is created.
    #[strum(serialize = "return_note.created")]
    ReturnNoteCreated,
}

impl EventType {
    /// All seven, in the specification's order.
    pub const ALL: [Self; 7] = [
        Self::QuoteClosed,
        Self::QuoteAccepted,
        Self::QuoteCancelled,
        Self::DeliveryNoteCreated,
        Self::DeliveryNoteMarkedDelivered,
        Self::StockReceiptCompleted,
        Self::ReturnNoteCreated,
    ];

    /// The dot-delimited name in every message, which is also the routing key.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The types that a misspelt routing key may mean: one whose name is the key but for case, blanks and a suffix, or
    /// those whose names begin with the key, at least up to their dot. An empty key may mean any type.
    #[must_use]
    pub fn of_misspelt(routing_key: &str) -> Vec<Self> {
        let key: String = routing_key.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
        let is_beginning = key.is_empty() || key.contains('.');
        let may_mean = |name: &str| key.starts_with(name) || (is_beginning && name.starts_with(&key));
        Self::ALL.into_iter().filter(|event_type| may_mean(event_type.as_str())).collect()
    }
}

/// A name that is not an event type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown event type {0:?}; known: quote.closed, quote.accepted, quote.cancelled, delivery_note.created, delivery_note.marked_delivered, stock_receipt.completed, return_note.created"
)]
pub struct UnknownEventType(pub String);

fn unknown(name: &str) -> UnknownEventType {
    UnknownEventType(name.to_owned())
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_the_error_lists_them_all() {
        let error = "quote.reopened".parse::<EventType>().unwrap_err();
        for known in EventType::ALL {
            assert_eq!(known.as_str().parse(), Ok(known));
            assert!(error.to_string().contains(known.as_str()));
        }
    }

    #[test]
    fn a_misspelt_routing_key_differs_by_case_blanks_or_a_suffix_and_may_leave_the_type_open() {
        let types = |keys: &[&str], expected: &[EventType]| {
            for key in keys {
                assert_eq!(EventType::of_misspelt(key), expected, "{key:?}");
            }
        };
        types(
            &["quote.close", "Quote.Closed", "quote.closed.v2", "QUOTE.CLOSED ", " quote. closed", "quote.closed\n"],
            &[EventType::QuoteClosed],
        );
        types(&["delivery_note.Marked_Delivered_2"], &[EventType::DeliveryNoteMarkedDelivered]);
        types(&["quote.ca"], &[EventType::QuoteCancelled]);
        types(&["Return_Note."], &[EventType::ReturnNoteCreated]);
        types(&["quote.c"], &[EventType::QuoteClosed, EventType::QuoteCancelled]);
        types(&["delivery_note."], &[EventType::DeliveryNoteCreated, EventType::DeliveryNoteMarkedDelivered]);
        types(&["", " \t"], &EventType::ALL);
        let others = [
            "q",
            "s",
            "invoice.paid",
            "quote",
            "quotes.closed",
            "quote.reopened",
            "audit.quote.closed",
            "#",
            "a.b",
            ".",
        ];
        types(&others, &[]);
    }
}
