//! Every message against its contract in `proto-schemas/`, and messages that are no events.
use std::collections::BTreeMap;

use domain::{EventType, Timestamp};
use end_to_end::{
    events::Event,
    outsider::Outsider,
    receiver::{Receiver, always, verify},
    servers::repository,
    system::{Options, Service, Subscriber, TestSystem, metric},
    wait::{SOON, until},
};
use jsonschema::Validator;
use lapin::{
    BasicProperties,
    message::BasicGetMessage,
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

fn schema(name: &str) -> Validator {
    let path = repository().join(format!("proto-schemas/{name}.schema.json"));
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
}

fn assert_fits(schema: &Validator, message: &[u8]) -> Value {
    let message: Value = serde_json::from_slice(message).unwrap();
    let violations: Vec<_> = schema.iter_errors(&message).map(|violation| violation.to_string()).collect();
    assert!(violations.is_empty(), "{violations:?} in {message}");
    message
}

/// Waits until a queue holds messages and takes them. There must be exactly `count`.
async fn take_all(broker: &Outsider, queue: &str, count: usize) -> Vec<BasicGetMessage> {
    let what = format!("{count} messages are on {queue}");
    until(&what, SOON, || async { broker.ready(queue).await as usize >= count }).await;
    let taken = broker.take_all(queue).await;
    assert_eq!(taken.len(), count, "on {queue}");
    taken
}

/// The message's headers, without the broker's own delivery count.
fn headers(message: &BasicGetMessage) -> BTreeMap<String, String> {
    let table = message.properties.headers().clone().unwrap_or_default();
    let own = table.inner().iter().filter(|(name, _)| name.as_str() != "x-delivery-count");
    own.map(|(name, value)| (name.to_string(), value.as_long_string().expect("a text header").to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_jobs_retries_and_envelopes_of_all_seven_types_fit_their_schemas() {
    let options = Options { schedule: "1h,2h,3h,4h,5h,6h", ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let (tenant, broker, names) = (Uuid::new_v4(), &system.upstream, &system.names);
    system.start(Service::Api).await;
    let receiver = Receiver::start(&system.ca, always(503));
    let types = EventType::ALL.map(EventType::as_str);
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &types).await;
    let events = EventType::ALL.map(|event_type| Event::now(event_type, tenant));
    broker.publish(&events).await;
    for (event, message) in events.iter().zip(take_all(broker, &names.events(), 7).await) {
        assert_fits(&schema("event"), &message.data);
        assert_eq!(message.data, event.to_message());
    }

    system.start(Service::Ingest).await;
    broker.publish(&events).await;
    let jobs = take_all(broker, &names.main(), 7).await;
    for job in &jobs {
        assert_eq!(assert_fits(&schema("job"), &job.data)["attempt"], 1);
        assert_eq!(*job.properties.delivery_mode(), Some(2), "a job survives a restart of the broker");
        assert_eq!(job.properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert!(headers(job).is_empty() && job.properties.expiration().is_none());
        broker.publish_to(&names.exchange(), &names.main(), &job.data).await;
    }

    system.start(Service::Dispatcher).await;
    let received = receiver.wait_for(7, SOON).await;
    for one in &received {
        verify(one, &webhook.secret).unwrap();
        let envelope = assert_fits(&schema("envelope"), &one.body);
        let event = events.iter().find(|event| envelope["event_type"] == event.event_type.as_str()).unwrap();
        assert_eq!(envelope["tenant_id"], tenant.to_string());
        assert!(String::from_utf8_lossy(&one.body).contains(&event.data), "data passes through byte for byte");
    }
    for retry in take_all(broker, &system.retry_queues()[0], 7).await {
        let fields = assert_fits(&schema("job"), &retry.data);
        assert_eq!(fields["attempt"], 2);
        let id = fields["delivery_id"].as_str();
        assert!(received.iter().any(|one| one.header("x-service-webhook-id") == id), "the retry keeps the id");
        let expiration: u64 = retry.properties.expiration().as_ref().unwrap().as_str().parse().unwrap();
        assert!((3_500_000..=3_600_000).contains(&expiration), "{expiration} ms");
        assert!(headers(&retry).is_empty());
    }
}

/// A message that is no usable event, the reason of its rejection, and a part of the detail.
struct Garbage {
    body: Vec<u8>,
    reason: &'static str,
    detail: &'static str,
}

const MALFORMED: &str = "malformed_json";
const INVALID: &str = "invalid_member";
const TOO_LARGE: &str = "data_too_large";

fn garbage(body: impl Into<Vec<u8>>, reason: &'static str, detail: &'static str) -> Garbage {
    Garbage { body: body.into(), reason, detail }
}

fn good() -> Value {
    serde_json::from_slice(&Event::now(EventType::QuoteClosed, Uuid::new_v4()).to_message()).unwrap()
}

fn with(member: &str, value: Value) -> String {
    let mut event = good();
    event[member] = value;
    event.to_string()
}

/// An event whose `data` has exactly `bytes` bytes.
fn with_data_of(bytes: usize) -> Event {
    let text = "x".repeat(bytes - r#"{"a":""}"#.len());
    Event::now(EventType::QuoteClosed, Uuid::new_v4()).with_data(format!(r#"{{"a":"{text}"}}"#))
}

/// Some of what is no event: `domain`, which parses messages, tests all kinds. And what is too long to be taken apart.
fn all_garbage() -> Vec<Garbage> {
    let nested = |depth| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let deep = Event::now(EventType::QuoteClosed, Uuid::new_v4()).with_data(nested(170_000));
    vec![
        garbage("", MALFORMED, "EOF"),
        garbage((0..=255).collect::<Vec<u8>>(), MALFORMED, ""),
        garbage("[".repeat(1_000_000), MALFORMED, ""),
        garbage(format!(r#"{{"data":{}"#, "[".repeat(1_000_000)), MALFORMED, ""),
        garbage(format!(r#"{{"data":{}}}"#, r#"{"a":"#.repeat(200_000)), MALFORMED, ""),
        garbage("{}", INVALID, "missing"),
        garbage(with("event_type", json!("quote.reopened")), INVALID, "quote.reopened"),
        garbage(with("event_type", json!("quote.".repeat(50_000))), INVALID, "event_type: "),
        garbage(with("timestamp", json!("2026-03-01T09:30:00+0000")), INVALID, "as in +00:00"),
        garbage(with_data_of(256 * 1024 + 1).to_message(), TOO_LARGE, "262145 bytes, the limit is 262144"),
        garbage(deep.to_message(), TOO_LARGE, "limit"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_among_good_events_is_parked_with_its_reason_and_the_good_ones_arrive_once() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, broker) = (Uuid::new_v4(), &system.upstream);
    system.start(Service::Api).await;
    system.start(Service::Dispatcher).await;
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let mut garbage = all_garbage();
    let mut good = Vec::new();
    for Garbage { body, .. } in &garbage {
        broker.publish_raw("quote.accepted", body).await;
        let event = Event::now(EventType::QuoteClosed, tenant);
        broker.publish(std::slice::from_ref(&event)).await;
        good.push(event);
    }
    let largest = Event { tenant, ..with_data_of(256 * 1024) };
    broker.publish(std::slice::from_ref(&largest)).await;
    good.push(largest);

    let ops = system.start(Service::Ingest).await;
    let (parked_count, good_count) = (garbage.len(), good.len());
    receiver.wait_for(good_count, SOON).await;
    for message in take_all(broker, &system.names.rejected(), parked_count).await {
        let fits = garbage.iter().position(|garbage| garbage.body == message.data);
        let Garbage { reason, detail, .. } = garbage.swap_remove(fits.expect("the body is untouched"));
        assert_parked(&message, reason, detail);
    }
    until("nothing is under way", SOON, || async {
        let open = "SELECT count(*) FROM deliveries WHERE state <> 'succeeded'";
        let waiting = broker.ready(&system.names.events()).await + broker.ready(&system.names.main()).await;
        waiting == 0 && system.count(open).await == 0
    })
    .await;

    let count = |what| async move { metric(ops, what).await as usize };
    assert_eq!(count(r#"webhooks_ingest_events_total{outcome="rejected"}"#).await, parked_count);
    assert_eq!(count(r#"webhooks_ingest_events_total{outcome="accepted"}"#).await, good_count);
    assert_eq!(count("webhooks_ingest_batch_size_sum").await, parked_count + good_count);
    let batches = count("webhooks_ingest_batch_size_count").await;
    assert!(batches < good_count, "good and bad ones shared {batches} batches");
    let bodies: Vec<_> = receiver.received().into_iter().map(|one| one.body).collect();
    assert_eq!(bodies.len(), good_count, "each once");
    for event in &good {
        let time: Timestamp = event.timestamp.parse().unwrap();
        let carries = |body: &bytes::Bytes| String::from_utf8_lossy(body).contains(&format!(r#""{time}""#));
        assert!(bodies.iter().any(carries), "{} of {time}", event.id);
    }
}

fn assert_parked(message: &BasicGetMessage, reason: &str, detail: &str) {
    let headers = headers(message);
    let names: Vec<_> = headers.keys().map(String::as_str).collect();
    assert_eq!(names, ["x-rejected-at", "x-rejected-detail", "x-rejected-reason", "x-rejected-routing-key"]);
    assert_eq!(headers["x-rejected-reason"], reason, "{headers:?}");
    assert!(headers["x-rejected-detail"].contains(detail), "{detail:?} in {headers:?}");
    assert!(headers["x-rejected-detail"].len() <= 1_000, "a detail is for a person");
    assert_eq!(headers["x-rejected-routing-key"], "quote.accepted");
    let age = OffsetDateTime::now_utc() - OffsetDateTime::parse(&headers["x-rejected-at"], &Rfc3339).unwrap();
    assert!((Duration::ZERO..Duration::minutes(5)).contains(&age), "{age}");
    assert_eq!(*message.properties.delivery_mode(), Some(2), "it survives a restart of the broker");
}

/// Properties by which the broker judges or routes a message, or counts its deliveries. The broker refuses a message with
/// the id of another user than the one that publishes it.
fn properties_for_the_broker(user: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("CC".into(), AMQPValue::FieldArray(vec![AMQPValue::LongString("quote.closed".into())].into()));
    headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(i64::MAX));
    headers.insert("x-handed-out".into(), AMQPValue::LongString("4294967295".into()));
    headers.insert("x-bulk".into(), AMQPValue::LongString("1".into()));
    BasicProperties::default()
        .with_delivery_mode(1)
        .with_priority(9)
        .with_user_id(user.into())
        .with_reply_to("nobody".into())
        .with_correlation_id("theirs".into())
        .with_expiration("3600000".into())
        .with_headers(headers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_of_a_published_message_are_not_passed_on() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, broker, names) = (Uuid::new_v4(), &system.upstream, &system.names);
    system.start(Service::Api).await;
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let settings = system.settings();
    let url: url::Url = settings.broker.url.expose().split(',').next().unwrap().parse().unwrap();
    let properties = properties_for_the_broker(url.username());
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.start(Service::Ingest).await;
    broker.publish_described("quote.accepted", b"no event", properties.clone()).await;
    // Copies of a message to one queue are one.
    broker.publish_described("quote.closed", &event.to_message(), properties).await;
    let job = take_all(broker, &names.main(), 1).await.remove(0);
    let parked = take_all(broker, &names.rejected(), 1).await.remove(0);
    assert_parked(&parked, MALFORMED, "");
    assert!(headers(&job).is_empty(), "{:?}", job.properties);
    for message in [&job, &parked] {
        let said = &message.properties;
        let values = (said.user_id(), said.priority(), said.reply_to(), said.correlation_id(), said.expiration());
        assert_eq!(values, (&None, &None, &None, &None, &None));
        assert_eq!(*said.delivery_mode(), Some(2), "it survives a restart of the broker");
    }
    broker.publish_to(&names.exchange(), &names.main(), &job.data).await;
    system.start(Service::Dispatcher).await;
    receiver.wait_for(1, SOON).await;
}

/// More than the minute after which bindings are declared again.
const BINDING_DEADLINE: std::time::Duration = std::time::Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_with_an_unknown_routing_key_comes_back_and_a_deleted_binding_is_declared_again() {
    let system = TestSystem::running(Options::default()).await;
    let (broker, names) = (&system.upstream, &system.names);
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let event = || Event::now(EventType::QuoteClosed, tenant).to_message();
    let is_taken = async |key| broker.try_publish_raw(key, &event()).await.is_ok();
    for key in ["quote.close", "Quote.Closed", "quote.closed.v2", "invoice.paid", ""] {
        assert!(!is_taken(key).await, "{key:?}");
    }
    assert!(is_taken("quote.closed").await);
    receiver.wait_for(1, SOON).await;

    broker.unbind(&names.events(), "quote.closed").await;
    assert!(!is_taken("quote.closed").await);
    until("the binding is declared again", BINDING_DEADLINE, || is_taken("quote.closed")).await;
    receiver.wait_for(2, SOON).await;
}
