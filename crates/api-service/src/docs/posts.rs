//! What a receiver gets: the whole POST of each event type, with signatures that verify.

use console::Posts;
use domain::{ATTEMPT_HEADER, DeliveryId, Event, EventId, EventType, WebhookId, catalogue, delivery_headers, envelope};
use signing::{
    SIGNATURE_HEADER, STANDARD_ID_HEADER, STANDARD_SIGNATURE_HEADER, STANDARD_TIMESTAMP_HEADER, SigningSecret, sign,
    sign_standard,
};
use uuid::Uuid;

/// The secret of `proto-schemas/signatures.json`, which signs nothing else.
const EXAMPLE_SECRET: &str = "whsec_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// 2026-03-01T09:30:00Z.
const SIGNED_AT: i64 = 1_772_357_400;
const WEBHOOK_ID: Uuid = Uuid::from_u128(0x0199_a3c2_7d54_7b1e_9c3a_5f0d_2e8b_4a11);
const EVENT_ID: Uuid = Uuid::from_u128(0x0192_f0c1_7d6e_7c3a_9a56_5a4d_3c2b_1a00);

/// The POSTs, for the page.
pub(super) fn posts() -> Posts {
    let request = |event_type| (event_type, post(event_type).unwrap_or_default());
    Posts { secret: EXAMPLE_SECRET, signed_at: SIGNED_AT, requests: EventType::ALL.map(request).to_vec() }
}

/// A request on the wire, or `None` if the catalogue's sample is no JSON, which its tests exclude.
fn post(event_type: EventType) -> Option<String> {
    let message = format!(
        r#"{{"event_id": "{EVENT_ID}", "event_type": "{event_type}", "tenant_id": "5b0e8d1c-5d5c-4d0c-8f43-0c1d2f9a7e11",
        "timestamp": "2026-03-01T09:29:59.123456Z", "data": {}}}"#,
        catalogue::sample(event_type)
    );
    let event = Event::parse(message.as_bytes(), usize::MAX).ok()?;
    let body = envelope(&event);
    let event_id = EventId::from(EVENT_ID);
    let id = DeliveryId::derive(WebhookId::from(WEBHOOK_ID), event_id, event_type, event.timestamp);
    let [own_id, own_type, own_event] = delivery_headers(id, event_id, event_type);
    let id = id.to_string();
    let secret = SigningSecret::from(EXAMPLE_SECRET.to_owned());
    let headers = [
        ("host", "erp.example.com".to_owned()),
        ("content-type", "application/json".to_owned()),
        ("content-length", body.len().to_string()),
        ("accept", "*/*".to_owned()),
        ("accept-encoding", "identity".to_owned()),
        ("user-agent", concat!("webhooks/", env!("CARGO_PKG_VERSION")).to_owned()),
        own_id,
        own_type,
        own_event,
        (ATTEMPT_HEADER, "1".to_owned()),
        (SIGNATURE_HEADER, sign(&secret, &body, SIGNED_AT)),
        (STANDARD_ID_HEADER, id.clone()),
        (STANDARD_TIMESTAMP_HEADER, SIGNED_AT.to_string()),
        (STANDARD_SIGNATURE_HEADER, sign_standard(&secret, &id, SIGNED_AT, &body)?),
    ];
    let headers: String = headers.map(|(name, value)| format!("{}: {value}\n", on_the_wire(name))).concat();
    Some(format!("POST /hooks HTTP/1.1\n{headers}\n{}", String::from_utf8(body).ok()?))
}

/// A header's name as dispatchers write it: each word begins with a capital.
fn on_the_wire(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.to_lowercase().split('-').map(capital).collect::<Vec<_>>().join("-")
}
