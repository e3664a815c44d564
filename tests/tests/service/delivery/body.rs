//! The body is fixed once, byte for byte (crates/README.md, invariant 5).

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Received, always},
    system::{Options, Service, Subscriber, TestSystem},
};
use ledger::NewEvent;
use ring::hmac;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::delivery::{ended, twice::new_event};

/// The envelope as the specification describes it, written by hand.
fn envelope(event_type: EventType, tenant: Uuid, timestamp: &str, data: &str) -> String {
    format!(r#"{{"event_type":"{event_type}","tenant_id":"{tenant}","timestamp":"{timestamp}","data":{data}}}"#)
}

/// Checks the signature over bytes alone. The harness's own check parses the body, within a parser's limits.
fn is_signed(one: &Received, secret: &str) -> bool {
    let header = one.header("x-service-signature").unwrap();
    let digest = hex::decode(header.split_once(",v1=").unwrap().1).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &one.body, &digest).is_ok()
}

fn odd_data() -> Vec<String> {
    let mut data: Vec<_> = [
        "{}",
        "{ }",
        r#"{"z":1,"a":2,"m":{"y":1,"b":2}}"#,
        "{ \"spaced\" :\t[ 1 ,2 ],\r\n  \"lines\": null }",
        r#"{"price":1.10,"zero":-0,"exact":0.1000000000000000055511151231257827,"exponent":1E+2}"#,
        r#"{"huge":1e400,"tiny":1e-400,"long":123456789012345678901234567890,"minus":-123456789012345678901234567890}"#,
        r#"{"escaped":"\u00e9\/\u002F\"\\\b\f\n\r\t","plain":"é/"}"#,
        r#"{"emoji":"😀👩‍👩‍👧","pair":"\ud83d\ude00","PAIR":"\uD83D\uDE00","lone":"\ud83d","nul":"\u0000"}"#,
        r#"{"twice":1,"twice":2,"twice":{"twice":1,"twice":1}}"#,
        r#"{"":{"":""},"data":{"data":{}},"event_type":"quote.accepted"}"#,
        "{\"separators\":\"\u{2028}\u{2029}\u{feff}\u{7f}\"}",
    ]
    .map(str::to_owned)
    .into();
    data.push(format!("{}1{}", r#"{"a":"#.repeat(40_000), "}".repeat(40_000)));
    data.push(format!("{{\"text\":\"{}\"}}", "ünïcödé ".repeat(250 * 1024 / 12)));
    data
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_passes_through_byte_for_byte_whatever_json_it_is() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, receiver, secret, .. } = system.subscriber(always(200)).await;
    // No time of this service is written like this.
    let timestamp = format!("{}T09:30:00.123450Z", OffsetDateTime::now_utc().date());
    let mut expected = Vec::new();
    for data in odd_data() {
        let event = Event::now(EventType::QuoteClosed, tenant).with_data(data.clone());
        system.upstream.publish(&[Event { timestamp: timestamp.clone(), ..event }]).await;
        expected.push(envelope(EventType::QuoteClosed, tenant, &timestamp, &data));
    }
    ended(&system, &[tenant], i64::try_from(expected.len()).unwrap()).await;
    let received = receiver.received();
    assert!(received.iter().all(|one| is_signed(one, &secret)));
    let mut bodies: Vec<_> = received.iter().map(|one| String::from_utf8(one.body.to_vec()).unwrap()).collect();
    bodies.sort();
    expected.sort();
    assert!(expected.iter().any(|body| body.len() > 250 * 1024));
    assert_eq!(bodies.len(), expected.len());
    for (body, expected) in bodies.iter().zip(&expected) {
        let different = body.bytes().zip(expected.bytes()).position(|(one, other)| one != other);
        let around = |text: &str, at: usize| text.chars().skip(at.saturating_sub(40)).take(80).collect::<String>();
        let shown = different.map(|at| (around(body, at), around(expected, at)));
        assert!(body == expected, "{} and {} bytes, differing at {different:?}: {shown:?}", body.len(), expected.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_fits_into_a_page_once_compressed_is_not_cut_into_pieces() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    api.create("https://localhost/", &["quote.closed"]).await;
    let line =
        |n: u64| format!(r#"{{"sku":"{:010X}","quantity":{}}}"#, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24, n % 97);
    let lines: Vec<_> = (0..450).map(line).collect();
    let data = format!(r#"{{"line_items":[{}]}}"#, lines.join(","));
    assert!(data.len() > 15 * 1024);
    let event = NewEvent { body: data.into(), ..new_event(tenant) };
    assert_eq!(system.ledger_as("stores", 1).events_store(&[event]).await.unwrap().deliveries.len(), 1);
    let sizes = "SELECT pg_column_size(e.body)::bigint, pg_relation_size(c.reltoastrelid)::bigint \
                 FROM events e JOIN pg_class c ON c.oid = e.tableoid";
    let row = &system.sql(sizes).await[0];
    let (stored, in_pieces): (i64, i64) = (row.get(0), row.get(1));
    assert!(stored > 4_000, "a body of {stored} bytes would not be cut anyway");
    assert_eq!(in_pieces, 0);
}
