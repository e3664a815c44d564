//! The messages that are published.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use domain::EventType;
use end_to_end::events::Event;
use uuid::Uuid;

/// The bytes of a usual body.
pub(crate) const SMALL_BODY_BYTES: usize = 614;
/// The bytes of a body without its `data`.
const ENVELOPE_BYTES: usize = 147;
const SENT_PREFIX: &str = r#"{"sent":"#;

/// Where to publish, and what. `make` gets a number and the time of sending in Unix microseconds, for the message.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) make: Arc<dyn Fn(u64, u64) -> Vec<u8> + Send + Sync>,
}

impl Load {
    /// Events for all tenants in turn. Their delivered bodies have about `size` bytes.
    pub(crate) fn of_events(exchange: &str, tenants: &[Uuid], size: usize) -> Self {
        let (filler, tenants) = (filler(size), tenants.to_vec());
        let make = move |number: u64, sent: u64| {
            let tenant = tenants[usize::try_from(number).unwrap_or_default() % tenants.len()];
            Event::now(EventType::QuoteClosed, tenant).with_data(data(sent, &filler)).to_message()
        };
        let routing_key = EventType::QuoteClosed.to_string();
        Self { exchange: exchange.to_owned(), routing_key, make: Arc::new(make) }
    }

    /// Ready bodies of the same size, straight into a queue.
    pub(crate) fn of_bodies(queue: &str, size: usize) -> Self {
        let (filler, tenant) = (filler(size), Uuid::new_v4());
        let make = move |_: u64, sent: u64| {
            let Event { event_type, timestamp, data, .. } =
                Event::now(EventType::QuoteClosed, tenant).with_data(data(sent, &filler));
            format!(r#"{{"event_type":"{event_type}","tenant_id":"{tenant}","timestamp":"{timestamp}","data":{data}}}"#)
                .into_bytes()
        };
        Self { exchange: String::new(), routing_key: queue.to_owned(), make: Arc::new(make) }
    }
}

fn data(sent: u64, filler: &str) -> String {
    format!("{SENT_PREFIX}{sent},{filler}}}")
}

/// When a message was to be sent, from the beginning of its body.
pub(crate) fn sent_at(body: &[u8]) -> Option<u64> {
    let at = body.windows(SENT_PREFIX.len()).position(|part| part == SENT_PREFIX.as_bytes())? + SENT_PREFIX.len();
    let digits: Vec<u8> = body[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Microseconds since 1970, a clock that all processes share.
pub(crate) fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Members of a JSON object that look like an order's lines and compress as badly.
fn filler(size: usize) -> String {
    let wanted = size.saturating_sub(ENVELOPE_BYTES + SENT_PREFIX.len() + 18);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut lines = String::from(r#""line_items":["#);
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (sku, quantity, cents) = (random >> 24, random % 997, random % 89);
        let line = format!(r#"{{"sku":"{sku:010X}","quantity":{quantity},"unit_price":"{quantity}.{cents:02}"}}"#);
        if lines.len() + line.len() + 20 > wanted {
            break;
        }
        lines.push_str(&line);
        lines.push(',');
    }
    let lines = format!("{}]", lines.trim_end_matches(','));
    let rest = wanted.saturating_sub(lines.len() + r#","note":"""#.len());
    format!(r#"{lines},"note":"{}""#, "n".repeat(rest))
}
