//! The trace of an event (W3C Trace Context): from its message through ledger and logs, to a collector if one is wanted,
//! and never to a receiver.
mod collector;
mod exported;
mod failed;
mod stopping;

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, always, fails_then_succeeds},
    system::{Options, Service, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use lapin::types::AMQPValue;
use serde_json::Value;
use uuid::Uuid;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn logging_at(level: &str) -> Options {
    let settings = vec![("LOG__LEVEL", level.to_owned()), ("LOG__FORMAT", "json".to_owned())];
    Options { schedule: "100ms,200ms,300ms,400ms,500ms,600ms", settings, ..Options::default() }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Publishes an event whose message has these headers. Returns its id.
async fn publish(system: &System, tenant: Uuid, headers: &[(&str, AMQPValue)]) -> Uuid {
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish_with("quote.closed", &event.to_message(), headers).await;
    event.id
}

/// The lines of a log in which this is said.
fn said(process: &Process, message: &str) -> Vec<Value> {
    let lines = process.logged();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

/// Waits until this is said so many times.
async fn until_said(process: &Process, message: &str, times: usize) -> Vec<Value> {
    let what = format!("{message:?} is said {times} times");
    eventually(&what, SOON, || async { Some(said(process, message)).filter(|lines| lines.len() == times) }).await
}

async fn stored(system: &System, event: Uuid) -> Option<String> {
    system.sql(&format!("SELECT traceparent FROM events WHERE id = '{event}'")).await[0].get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_an_event_is_in_ledger_and_logs_and_never_sent() {
    let system = TestSystem::prepared(logging_at("debug")).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    let receiver = Receiver::start(&system.ca, fails_then_succeeds(1));
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let ingest = Process::start("event-ingest", &system.variables).await;
    let dispatcher = Process::start("dispatcher", &system.variables).await;
    let event = Event::now(EventType::QuoteClosed, tenant);
    let (traced, headers) = (event.id, [("traceparent", text(TRACE)), ("tracestate", text("a=1"))]);
    system.upstream.publish_with("quote.closed", &event.to_message(), &headers).await;
    let untraced = [
        publish(&system, tenant, &[]).await,
        publish(&system, tenant, &[("traceparent", text(&TRACE.to_uppercase()))]).await,
        publish(&system, tenant, &[("traceparent", AMQPValue::ByteArray(TRACE.as_bytes().to_vec().into()))]).await,
    ];
    let attempts = until_said(&dispatcher, "attempted", 8).await;

    assert_eq!(stored(&system, traced).await.as_deref(), Some(TRACE));
    for event in untraced {
        assert_eq!(stored(&system, event).await, None, "{event}");
    }
    for message in ["an event came", "an event is judged"] {
        for line in until_said(&ingest, message, 4).await {
            let of_traced = line["event"] == traced.to_string();
            assert_eq!(line.get("traceparent"), of_traced.then_some(&Value::from(TRACE)), "{line}");
        }
    }
    let of_trace: Vec<_> = attempts.iter().filter(|line| line["span"]["traceparent"] == TRACE).collect();
    let outcomes: Vec<_> = of_trace.iter().map(|line| (&line["span"]["attempt"], &line["outcome"])).collect();
    assert_eq!(outcomes, [(&1.into(), &"status".into()), (&2.into(), &"success".into())]);
    assert!(of_trace.iter().all(|line| line["span"]["webhook"] == webhook.id));
    let without = attempts.iter().filter(|line| line["span"].get("traceparent").is_none());
    assert_eq!(without.count(), 6, "{attempts:?}");

    let received = receiver.received();
    assert_eq!(received.len(), 8);
    for one in received {
        assert_eq!((one.header("traceparent"), one.header("tracestate")), (None, None));
        assert!(!format!("{one:?}").to_lowercase().contains(TRACE_ID), "{one:?}");
        assert!(!String::from_utf8_lossy(&one.body).to_lowercase().contains(TRACE_ID));
    }
    // The first of two traces stays.
    let other = [("traceparent", text(&TRACE.replace("4bf9", "4bfa")))];
    system.upstream.publish_with("quote.closed", &event.to_message(), &other).await;
    until_said(&ingest, "an event is judged", 5).await;
    assert_eq!(stored(&system, traced).await.as_deref(), Some(TRACE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_and_a_drop_name_the_trace_at_the_usual_level() {
    let system = TestSystem::prepared(logging_at("info")).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    let receiver = Receiver::start(&system.ca, always(500));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let ingest = Process::start("event-ingest", &system.variables).await;
    let dispatcher = Process::start("dispatcher", &system.variables).await;
    system.upstream.publish_with("quote.closed", b"no event", &[("traceparent", text(TRACE))]).await;
    system.upstream.publish_raw("quote.closed", b"no event either").await;
    publish(&system, tenant, &[("traceparent", text(TRACE))]).await;
    publish(&system, tenant, &[]).await;

    for (process, message) in [(&ingest, "an unusable event is rejected"), (&dispatcher, "dropped")] {
        let lines = until_said(process, message, 2).await;
        let traced = lines.iter().filter(|line| line["traceparent"] == TRACE).count();
        let untraced = lines.iter().filter(|line| line.get("traceparent").is_none()).count();
        assert_eq!((traced, untraced), (1, 1), "{lines:?}");
        assert_eq!(process.logged().matches(TRACE_ID).count(), 1, "nothing else is said: {}", process.logged());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_stored_is_named_by_its_trace() {
    let system = TestSystem::prepared(logging_at("info")).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    system.admin(tenant).await.create("https://localhost/hook", &["quote.closed"]).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$; \
                      CREATE TRIGGER refuse BEFORE INSERT ON events EXECUTE FUNCTION refuse()";
    drop(system.database_session(refuse).await);
    let ingest = Process::start("event-ingest", &system.variables).await;
    let event = publish(&system, tenant, &[("traceparent", text(TRACE))]).await;
    let failed = || said(&ingest, "storing events failed; trying again");
    let failed = eventually("it fails", SOON, || async { failed().pop() }).await;
    assert_eq!((&failed["span"]["traceparent"], &failed["level"]), (&TRACE.into(), &"WARN".into()), "{failed}");

    system.sql("DROP TRIGGER refuse ON events").await;
    system.until_count("SELECT count(*) FROM events", 1, SOON).await;
    assert_eq!(stored(&system, event).await.as_deref(), Some(TRACE));
}
