//! The seven event types (specification, section 6).

use serde::{Deserialize, Deserializer, Serialize, de};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::all::all;

/// What happened in the tenant's account. There are exactly seven.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Display,
    EnumString,
    IntoStaticStr,
    Serialize,
    VariantArray,
)]
#[cfg_attr(feature = "diesel", derive(diesel::expression::AsExpression, diesel::deserialize::FromSqlRow))]
#[cfg_attr(feature = "diesel", diesel(sql_type = diesel::sql_types::Text))]
#[serde(into = "&'static str")]
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
    pub const ALL: [Self; 7] = all(Self::VARIANTS);

    /// The dot-delimited name in every message, which is also the routing key.
    pub fn as_str(self) -> &'static str {
        self.into()
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
}
