//! Shows the deliveries of all seven events.

use std::collections::HashMap;

use domain::EventType;
use end_to_end::{
    events::Event,
    outsider::Outsider,
    receiver::{Received, Receiver, verify},
    wait::SOON,
};
use serde_json::value::RawValue;

use crate::{
    failure::{Checked, Failure, same},
    fixtures::{Fixtures, Webhook, at},
    page::{say, short},
};

/// Publishes the events and shows each delivery as its receiver verified it.
pub(crate) async fn show(fixtures: &Fixtures, receiver: &Receiver, upstream: &Outsider) -> Checked {
    let events = EventType::ALL.map(|event_type| Event::now(event_type, fixtures.tenant));
    let sent = time::OffsetDateTime::now_utc();
    upstream.publish(&events).await;
    let webhook = &fixtures.always_ok;
    let received = receiver
        .try_wait_until(SOON, |received| at(webhook, received).len() >= events.len())
        .await
        .map_err(|summary| Failure::new("deliveries to /always-ok", events.len(), summary))?;
    say!(
        "  {:<30}  {:<36}  {:>6}  {:<9}  {:<8}  headers",
        "event",
        "X-Service-Webhook-Id",
        "after",
        "signature",
        "envelope"
    );
    for event in &events {
        let what = format!("the delivery of {}", event.event_type);
        let delivery = one_of(event.event_type, webhook, &received)
            .map_err(|count| Failure::new(&what, "one request", format!("{count} requests")))?;
        verified(&what, webhook, delivery)?;
        same_content(&what, event, delivery)?;
        let header = |name| delivery.header(name).unwrap_or_default();
        let digest = header("x-service-signature").rsplit_once("v1=").map_or("", |(_, digest)| digest);
        let after = format!("{} ms", (delivery.at - sent).whole_milliseconds());
        let size = format!("ok {} B", delivery.body.len());
        let (id, digest) = (header("x-service-webhook-id"), short(digest, 4));
        say!("  {:<30}  {id}  {after:>6}  ok {digest}  {size:<8}  ok", event.event_type.as_str());
    }
    Ok(())
}

/// The receiver's own check: signature (a computation of its own) and its age, envelope and headers.
pub(crate) fn verified(what: &str, webhook: &Webhook, delivery: &Received) -> Checked {
    verify(delivery, &webhook.secret).map_err(|violation| {
        Failure::new(what, "signature, envelope and headers as specified", violation).in_log_of("dispatcher")
    })
}

fn one_of<'r>(event_type: EventType, webhook: &Webhook, received: &'r [Received]) -> Result<&'r Received, usize> {
    let mut found = at(webhook, received);
    found.retain(|one| one.header("x-service-event") == Some(event_type.as_str()));
    if let [one] = found[..] { Ok(one) } else { Err(found.len()) }
}

/// The envelope has the event's tenant and timestamp, and its `data` byte for byte.
fn same_content(what: &str, event: &Event, delivery: &Received) -> Checked {
    let envelope: HashMap<String, &RawValue> =
        serde_json::from_slice(&delivery.body).map_err(|error| Failure::new(what, "JSON", error))?;
    let expected = [
        ("tenant_id", format!("\"{}\"", event.tenant)),
        ("timestamp", format!("\"{}\"", event.timestamp.parse::<domain::Timestamp>().expect("the timestamp is good"))),
        ("data", event.data.clone()),
    ];
    for (member, expected) in expected {
        let came = envelope.get(member).map_or("", |value| value.get());
        same(format!("{member} in {what}"), &expected.as_str(), &came)?;
    }
    Ok(())
}
