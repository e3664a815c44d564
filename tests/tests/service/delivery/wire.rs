//! What a receiver sees besides the body (specification, sections 4.4 and 5.2).

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Received, Receiver, always, verify},
    system::{Options, System, TestSystem},
    wait::SOON,
};
use uuid::Uuid;

/// Delivers one event to one webhook; returns what arrived, the webhook's id and its secret.
async fn deliver(system: &System, event: &Event) -> (Received, Uuid, String) {
    let receiver = Receiver::start(&system.ca, always(200));
    let types = [event.event_type.as_str()];
    let webhook = system.admin(event.tenant).await.create(&receiver.url("/hook"), &types).await;
    system.upstream.publish(std::slice::from_ref(event)).await;
    let one = receiver.wait_for(1, SOON).await.remove(0);
    assert_eq!(one.header("host"), Some(format!("localhost:{}", receiver.addr().port()).as_str()));
    (one, webhook.id.parse().unwrap(), webhook.secret)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_headers_are_those_of_the_specification_and_nothing_surprising() {
    let system = TestSystem::shared().await;
    let event = Event::now(EventType::DeliveryNoteMarkedDelivered, Uuid::new_v4());
    let (one, _, secret) = deliver(&system, &event).await;
    let before = one.at.unix_timestamp();
    assert_eq!((one.method.as_str(), one.path.as_str()), ("POST", "/hook"));
    let mut names: Vec<_> = one.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "accept-encoding",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "x-service-attempt",
        "x-service-event",
        "x-service-event-id",
        "x-service-signature",
        "x-service-webhook-id",
    ];
    assert_eq!(names, expected);
    assert_eq!(one.header("content-type"), Some("application/json"));
    assert_eq!([one.header("accept"), one.header("accept-encoding")], [Some("*/*"), Some("identity")]);
    assert_eq!(one.header("content-length"), Some(one.body.len().to_string().as_str()));
    assert_eq!(one.header("x-service-event"), Some("delivery_note.marked_delivered"));
    assert_eq!(one.header("x-service-event-id"), Some(event.id.to_string().as_str()));
    assert_eq!(one.header("x-service-attempt"), Some("1"));
    assert!(one.header("user-agent").unwrap().starts_with("webhooks/"));
    verify(&one, &secret).unwrap();
    let signature = one.header("x-service-signature").unwrap();
    let t: i64 = signature.strip_prefix("t=").unwrap().split_once(',').unwrap().0.parse().unwrap();
    assert!((0..=10).contains(&(before - t)), "signed {} s before it arrived", before - t);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_setting_only_the_headers_of_the_specification_are_sent() {
    let system = TestSystem::running(Options::with([("SIGNING__STANDARD_WEBHOOKS", "false")])).await;
    let event = Event::now(EventType::QuoteClosed, Uuid::new_v4());
    let (one, _, secret) = deliver(&system, &event).await;
    assert!(one.headers.iter().all(|(name, _)| !name.starts_with("webhook-")), "{:?}", one.headers);
    verify(&one, &secret).unwrap();
}
