//! Shows the deliveries of all seven events.

use std::collections::HashMap;

use domain::{EventType, Timestamp};
use end_to_end::{
    events::Event,
    receiver::{Received, verify},
    system::System,
    wait::SOON,
};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::{
    fixtures::{Fixtures, short},
    page::say,
};

/// Publishes the events and shows each delivery as its receiver verified it.
pub(crate) async fn show(system: &System, Fixtures { tenant, receiver, always_ok, .. }: &Fixtures) {
    let events = EventType::ALL.map(|event_type| Event::now(event_type, *tenant));
    let sent = OffsetDateTime::now_utc();
    system.upstream.publish(&events).await;
    let received = receiver.wait_until(SOON, |received| always_ok.among(received).len() >= events.len()).await;
    say!(
        "  {:<30}  {:<36}  {:>6}  {:<9}  {:<8}  headers",
        "event",
        "X-Service-Webhook-Id",
        "after",
        "signature",
        "envelope"
    );
    for event in &events {
        let mut deliveries = always_ok.among(&received);
        deliveries.retain(|one| one.header("x-service-event") == Some(event.event_type.as_str()));
        let [delivery] = deliveries[..] else { panic!("{}: {} requests", event.event_type, deliveries.len()) };
        verify(delivery, &always_ok.secret).expect("signature, envelope and headers are as specified");
        check_content(event, delivery);
        let header = |name| delivery.header(name).unwrap_or_default();
        let digest = header("x-service-signature").rsplit_once("v1=").map_or("", |(_, digest)| digest);
        let after = format!("{} ms", (delivery.at - sent).whole_milliseconds());
        let size = format!("ok {} B", delivery.body.len());
        let (id, digest) = (header("x-service-webhook-id"), short(digest, 4));
        say!("  {:<30}  {id}  {after:>6}  ok {digest}  {size:<8}  ok", event.event_type.as_str());
    }
}

/// Checks that the envelope has the event's tenant and timestamp, and its `data` byte for byte.
fn check_content(event: &Event, delivery: &Received) {
    let envelope: HashMap<String, &RawValue> = serde_json::from_slice(&delivery.body).expect("it is JSON");
    let timestamp: Timestamp = event.timestamp.parse().expect("the timestamp is good");
    let expected = [
        ("tenant_id", format!("\"{}\"", event.tenant)),
        ("timestamp", format!("\"{timestamp}\"")),
        ("data", event.data.clone()),
    ];
    for (member, expected) in expected {
        assert_eq!(envelope[member].get(), expected, "{member} of {}", event.event_type);
    }
}
