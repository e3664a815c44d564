//! A day of business.

use std::ops::Range;

use domain::EventType;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::events::Event;

const CLIENTS: [&str; 6] =
    ["Nordwind Møbler", "Atelier Lumière", "Brückner & Söhne", "Casa Verde", "Harbour Supplies", "Ørsted & Søn"];
const GOODS: [(&str, &str); 5] =
    [("PAL-80", "14.50"), ("BOX-4", "2.20"), ("TAPE-50", "3.95"), ("RACK-2", "189.00"), ("LABEL-A6", "0.04")];

/// Events that fired in these hours before now: about so many an hour, more by day than by night.
pub(super) fn past(tenant: Uuid, event_type: EventType, hours: Range<u16>, an_hour: f64) -> Vec<Event> {
    let now = OffsetDateTime::now_utc();
    // None so young that its retries, moved back, would lie in the future.
    let newest = now - Duration::minutes(17);
    let mut due = 0.0;
    let mut events = Vec::new();
    for minute in (hours.start * 60..hours.end * 60).rev() {
        let at = now - Duration::minutes(minute.into());
        let day = 1.0 - 0.75 * (f64::from(at.hour()) / 24.0 * std::f64::consts::TAU).cos();
        due += an_hour * day / 60.0;
        if due >= 1.0 && at < newest {
            due -= 1.0;
            events.push(event(tenant, event_type, at, events.len()));
        }
    }
    events
}

/// Their ids, as an array of the database is written.
pub(super) fn ids(events: &[Event]) -> String {
    events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>().join(",")
}

fn event(tenant: Uuid, event_type: EventType, at: OffsetDateTime, nth: usize) -> Event {
    let at = at + Duration::milliseconds((nth as i64 * 7_919) % 50_000);
    let timestamp = at.format(&Rfc3339).expect("a time can be written");
    Event { timestamp, ..Event::now(event_type, tenant).with_data(data(event_type, nth).to_string()) }
}

fn data(event_type: EventType, nth: usize) -> Value {
    let (client, (sku, price)) = (CLIENTS[nth % CLIENTS.len()], GOODS[nth % GOODS.len()]);
    let number = 1_000 + nth;
    let item = json!({"sku": sku, "quantity": 4 + nth % 9 * 4, "unit_price": price});
    match event_type {
        EventType::QuoteClosed | EventType::QuoteAccepted | EventType::QuoteCancelled => {
            json!({"quote_id": format!("Q-2026-{number}"), "client": {"name": client}, "line_items": [item]})
        }
        EventType::StockReceiptCompleted => json!({"stock_receipt_id": format!("SR-{number}"), "items": [item]}),
        EventType::ReturnNoteCreated => {
            json!({"return_note_id": format!("RN-{number}"), "reason": "damaged", "items": [item]})
        }
        EventType::DeliveryNoteCreated | EventType::DeliveryNoteMarkedDelivered => {
            json!({"delivery_note_id": format!("DN-{number}"), "recipient": client, "items": [item]})
        }
    }
}
