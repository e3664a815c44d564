//! Business events as upstream services publish them.

use domain::EventType;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

/// An event, ready to be published.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its id.
    pub id: Uuid,
    /// One of the seven event types.
    pub event_type: EventType,
    /// The tenant.
    pub tenant: Uuid,
    /// The time of the event, as the message writes it.
    pub timestamp: String,
    /// The JSON of `data`, byte for byte.
    pub data: String,
}

impl Event {
    /// An event of this moment, with realistic data.
    #[must_use]
    pub fn now(event_type: EventType, tenant: Uuid) -> Self {
        let timestamp = OffsetDateTime::now_utc().format(&Rfc3339).expect("now can be written");
        Self { id: Uuid::now_v7(), event_type, tenant, timestamp, data: sample(event_type) }
    }

    /// Closed quotes of this moment.
    #[must_use]
    pub fn closed(tenant: Uuid, count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::now(EventType::QuoteClosed, tenant)).collect()
    }

    /// Replaces the data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<String>) -> Self {
        self.data = data.into();
        self
    }

    /// The body of the message.
    pub fn to_message(&self) -> Vec<u8> {
        let Self { id, event_type, tenant, timestamp, data } = self;
        format!(
            r#"{{"event_id":"{id}","event_type":"{event_type}","tenant_id":"{tenant}","timestamp":"{timestamp}","data":{data}}}"#
        )
        .into_bytes()
    }
}

fn sample(event_type: EventType) -> String {
    let data = match event_type {
        EventType::QuoteClosed | EventType::QuoteAccepted | EventType::QuoteCancelled => {
            r#"{"quote_id":"Q-2026-0117","client":{"name":"Ørsted & Søn","email":"buy@example.com"},"line_items":[{"sku":"PAL-80","quantity":12,"unit_price":"14.50"}],"totals":{"net":"174.00","tax":"33.06","gross":"207.06"}}"#
        }
        EventType::DeliveryNoteCreated | EventType::DeliveryNoteMarkedDelivered => {
            r#"{"delivery_note_id":"DN-4471","items":[{"sku":"PAL-80","quantity":12}],"status":"created"}"#
        }
        EventType::StockReceiptCompleted => r#"{"stock_receipt_id":"SR-88","items":[{"sku":"BOX-4","quantity":400}]}"#,
        EventType::ReturnNoteCreated => {
            r#"{"return_note_id":"RN-12","reason":"damaged","items":[{"sku":"BOX-4","quantity":3}]}"#
        }
    };
    data.to_owned()
}
