//! The body that a receiver gets (specification, section 2.2).

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Event, EventType, TenantId, Timestamp};

/// The maximum of bytes of an envelope around its `data`. A longer one would be copied as it grows.
const MAX_WRAPPER_BYTES: usize = 192;

#[derive(Serialize)]
struct Envelope<'m> {
    event_type: EventType,
    tenant_id: TenantId,
    timestamp: Timestamp,
    data: &'m RawValue,
}

/// The envelope's exact bytes. Ingest makes them once. They are stored, signed and sent unchanged on every attempt.
pub fn envelope(event: &Event<'_>) -> Vec<u8> {
    let envelope = Envelope {
        event_type: event.event_type,
        tenant_id: event.tenant,
        timestamp: event.timestamp,
        data: event.data,
    };
    let mut bytes = Vec::with_capacity(event.data.get().len() + MAX_WRAPPER_BYTES);
    match serde_json::to_writer(&mut bytes, &envelope) {
        Ok(()) => bytes,
        Err(_) => unreachable!("strings and raw JSON always serialize"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn around(data: &str) -> String {
        format!(
            r#"{{"data":{data}, "timestamp":"2026-03-01T10:30:00.5+01:00","tenant_id":"5B0E0000-0000-4000-8000-000000000001",
            "event_type":"quote.closed","event_id":"0192f0c1-0000-7000-8000-000000000001"}}"#
        )
    }

    #[test]
    fn the_members_are_exactly_four_and_data_is_untouched() {
        let data = r#"{ "z": 1.10, "a":1e400,"n":123456789012345678901234567890, "s":"\u00e9\/😀\ud83d\ude00" }"#;
        let message = around(data);
        let body = envelope(&Event::parse(message.as_bytes(), 1000).unwrap());
        assert_eq!(
            String::from_utf8(body).unwrap(),
            format!(
                r#"{{"event_type":"quote.closed","tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00.500000Z","data":{data}}}"#
            )
        );
    }

    proptest! {
        #[test]
        fn any_member_of_data_survives_byte_for_byte(key in ".*", number in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?") {
            let data = format!("{{{}:{number}}}", serde_json::to_string(&key).unwrap());
            let message = around(&data);
            let body = envelope(&Event::parse(message.as_bytes(), 1_000_000).unwrap());
            let expected = format!("\"data\":{data}}}");
            prop_assert!(body.ends_with(expected.as_bytes()));
        }
    }
}
