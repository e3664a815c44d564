//! The headers by which a receiver tells deliveries, events and attempts apart, besides the signatures (specification, section 4.4).

use crate::{
    event_type::EventType,
    ids::{DeliveryId, EventId},
};

/// The header with the number of an attempt within its run of the schedule, from 1.
pub const ATTEMPT_HEADER: &str = "X-Service-Attempt";
/// The header that only test deliveries have.
pub const TEST_HEADER: (&str, &str) = ("X-Service-Test", "true");

/// The headers that are the same on every attempt of a delivery, except [`TEST_HEADER`].
pub fn delivery_headers(id: DeliveryId, event: EventId, event_type: EventType) -> [(&'static str, String); 3] {
    [
        ("X-Service-Webhook-Id", id.to_string()),
        ("X-Service-Event", event_type.to_string()),
        ("X-Service-Event-Id", event.to_string()),
    ]
}
