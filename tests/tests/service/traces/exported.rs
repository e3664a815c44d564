//! What a collector gets.

use std::collections::BTreeMap;

use end_to_end::{
    api::Created,
    processes::{free_address, with_api_address},
    receiver::Received,
};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::*;
use crate::traces::collector::{Collector, Seen};

/// What no exported byte may show.
pub(crate) const PAYLOAD: &str = "a-customers-name";
pub(crate) const PATH_TOKEN: &str = "t0ken-in-the-path";
pub(crate) const QUERY: &str = "key=t0ken-in-the-query";
const COLLECTORS_KEY: &str = "t0ken-of-the-collector";
const AGENT: &str = "a-browser/1";
/// Variables of OpenTelemetry's own libraries, which have no effect.
const FOREIGN: [(&str, &str); 4] = [
    ("OTEL_EXPORTER_OTLP_HEADERS", "x-foreign=1"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
];

const SCHEDULE: &str = "100ms,200ms,300ms,400ms,500ms,600ms";

fn untraced() -> [(&'static str, AMQPValue); 0] {
    []
}

/// Publishes an event whose data are telling.
async fn publish_telling(system: &System, tenant: Uuid, headers: &[(&str, AMQPValue)]) -> Uuid {
    let event = Event::now(EventType::QuoteClosed, tenant).with_data(format!(r#"{{"client":"{PAYLOAD}"}}"#));
    system.upstream.publish_with("quote.closed", &event.to_message(), headers).await;
    event.id
}

/// What happened while traces were on.
struct Traffic {
    webhook: Created,
    session: String,
    /// An event that came with a trace, and one that came without.
    events: [Uuid; 2],
    received: Vec<Received>,
}

/// An event with a trace, one without, and a test delivery. Each fails once. All of it by processes that log nothing, and
/// that have ended.
async fn traffic(system: &System, receiver: &Receiver) -> Traffic {
    let tenant = Uuid::new_v4();
    let mut variables = with_api_address(system).await;
    variables.extend(FOREIGN.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let api = Process::start("api-service", &variables).await;
    let ingest = Process::start("event-ingest", &variables).await;
    let dispatcher = Process::start("dispatcher", &variables).await;
    let admin = system.admin(tenant).await;
    let webhook = admin.create(&receiver.url(&format!("/{PATH_TOKEN}?{QUERY}")), &["quote.closed"]).await;
    let traced = publish_telling(system, tenant, &[("traceparent", text(TRACE))]).await;
    receiver.wait_for(2, SOON).await;
    let alone = publish_telling(system, tenant, &untraced()).await;
    receiver.wait_for(4, SOON).await;
    let headers = [("traceparent", TRACE), ("user-agent", AGENT), ("content-type", "application/json")];
    let test = admin.send("POST", &format!("/api/v1/webhooks/{}/test/?{QUERY}", webhook.id), &headers, "{}").await;
    assert_eq!(test.status, 202, "{}", test.text);
    admin.get(&format!("/{PATH_TOKEN}")).await;
    let received = receiver.wait_for(6, SOON).await;
    for process in [api, ingest, dispatcher] {
        assert_eq!(process.logged(), "", "log.level is off");
        assert!(process.terminate().await.success());
    }
    Traffic { webhook, session: admin.session.unwrap(), events: [traced, alone], received }
}

pub(crate) fn of<'s>(spans: &'s [Seen], service: &str, attribute: &str, value: &str) -> Vec<&'s Seen> {
    spans.iter().filter(|span| span.service == service && span.attribute(attribute) == value).collect()
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn assert_events(system: &System, spans: &[Seen], [traced, alone]: [Uuid; 2]) -> String {
    let destination = format!("{}:quote.closed:{}", system.names.events_exchange, system.names.events());
    let of_event = |event: Uuid| {
        let found = of(spans, "event-ingest", "webhooks.event.id", &event.to_string());
        let [span] = found[..] else { panic!("{found:?}") };
        assert_eq!(
            (&span.name, span.kind, span.is_failed),
            (&format!("process {destination}"), SpanKind::Consumer, false)
        );
        let mut rest = span.attributes.clone();
        assert!(rest.remove("webhooks.event.id").is_some() && rest.remove("webhooks.tenant.id").is_some());
        let said = [
            ("messaging.system", "rabbitmq"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", destination.as_str()),
            ("webhooks.event.type", "quote.closed"),
            ("webhooks.event.outcome", "accepted"),
        ];
        assert_eq!(rest, map(&said));
        assert!(span.nanos > 0);
        span
    };
    assert_eq!(of_event(traced).parent.as_deref(), Some(TRACE));
    let root = of_event(alone);
    assert_eq!(root.parent, None);
    root.traceparent.clone()
}

/// The two attempts of a delivery are children of `parent`.
fn assert_attempts(spans: &[Seen], receiver: &Receiver, delivery: &str, parent: &str) {
    let attempts = of(spans, "dispatcher", "webhooks.delivery.id", delivery);
    let [failed, succeeded] = attempts[..] else { panic!("{attempts:?}") };
    let port = receiver.addr().port().to_string();
    for (attempt, own) in [
        (
            failed,
            &[
                ("http.response.status_code", "500"),
                ("error.type", "500"),
                ("webhooks.attempt", "1"),
                ("webhooks.outcome", "status"),
            ][..],
        ),
        (
            succeeded,
            &[
                ("http.response.status_code", "200"),
                ("http.request.resend_count", "1"),
                ("webhooks.attempt", "2"),
                ("webhooks.outcome", "success"),
            ],
        ),
    ] {
        assert_eq!((attempt.name.as_str(), attempt.kind), ("POST", SpanKind::Client));
        assert_eq!(
            (attempt.parent.as_deref(), attempt.is_failed),
            (Some(parent), attempt.attributes.contains_key("error.type"))
        );
        let mut said = map(own);
        said.extend(map(&[
            ("http.request.method", "POST"),
            ("server.address", "localhost"),
            ("server.port", port.as_str()),
            ("network.protocol.version", "1.1"),
            ("webhooks.delivery.id", delivery),
            ("webhooks.event.type", "quote.closed"),
        ]));
        let mut rest = attempt.attributes.clone();
        assert!(rest.remove("webhooks.webhook.id").is_some() && rest.remove("webhooks.tenant.id").is_some());
        assert_eq!(rest, said);
    }
}

/// Returns what the test delivery's request is called by others.
fn assert_requests(spans: &[Seen]) -> String {
    let route = "/api/v1/webhooks/{id}/test/";
    let tests = of(spans, "api-service", "http.route", route);
    let [test] = tests[..] else { panic!("{tests:?}") };
    assert_eq!((test.name.as_str(), test.kind), (format!("POST {route}").as_str(), SpanKind::Server));
    assert_eq!(test.parent.as_deref(), Some(TRACE));
    let said = [
        ("http.request.method", "POST"),
        ("url.scheme", "http"),
        ("http.route", route),
        ("http.response.status_code", "202"),
    ];
    assert_eq!(test.attributes, map(&said));
    let unmatched: Vec<_> = spans.iter().filter(|span| span.name == "GET").collect();
    assert!(matches!(unmatched[..], [one] if one.attribute("http.response.status_code") == "404" && !one.is_failed));
    test.traceparent.clone()
}

fn assert_nothing_is_told(collector: &Collector, traffic: &Traffic) {
    let signatures = traffic.received.iter().filter_map(|one| one.header("x-service-signature"));
    let mut secrets: Vec<_> = signatures.map(|signature| signature.rsplit('=').next().unwrap()).collect();
    secrets.extend([
        PAYLOAD,
        PATH_TOKEN,
        QUERY,
        COLLECTORS_KEY,
        AGENT,
        &traffic.session,
        &traffic.webhook.secret[..24],
    ]);
    collector.assert_untold(&secrets);
    collector.with_exports(|exports| {
        for export in exports {
            assert_eq!(
                (export.path.as_str(), &export.headers["content-type"]),
                ("/v1/traces", &"application/x-protobuf".parse().unwrap())
            );
            assert_eq!(export.headers["x-key"], COLLECTORS_KEY);
            assert!(!export.headers.contains_key("x-foreign"));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_attempts_and_requests_are_spans_of_the_traces_that_they_came_with() {
    let collector = Collector::start().await;
    let settings = vec![
        collector.endpoint(),
        ("TRACES__HEADERS", format!("x-key={COLLECTORS_KEY}")),
        ("LOG__LEVEL", "off".to_owned()),
    ];
    let options = Options { schedule: SCHEDULE, settings, ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let receiver = Receiver::start(&system.ca, fails_then_succeeds(1));
    let traffic = traffic(&system, &receiver).await;
    let spans = collector.spans();
    let root = assert_events(&system, &spans, traffic.events);
    assert_eq!(stored(&system, traffic.events[0]).await.as_deref(), Some(TRACE), "what came is kept");
    assert_eq!(stored(&system, traffic.events[1]).await, Some(root.clone()), "what began is kept");
    let request = assert_requests(&spans);
    let ids: Vec<_> = traffic.received.iter().map(|one| one.header("x-service-webhook-id").unwrap()).collect();
    for (id, parent) in [(ids[0], TRACE), (ids[2], &root), (ids[4], &request)] {
        assert_attempts(&spans, &receiver, id, parent);
    }
    assert_nothing_is_told(&collector, &traffic);
    for one in &traffic.received {
        assert_eq!(one.header("traceparent"), None);
    }
}

/// How many spans a process has, by what became of them.
async fn counted(process: &Process, fate: &str) -> f64 {
    metric(process.ops, &format!("webhooks_trace_spans_total{{outcome=\"{fate}\"}}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_collector_is_away_deliveries_go_on_and_what_finds_no_room_is_counted() {
    let address = free_address();
    let settings = vec![("TRACES__ENDPOINT", format!("http://{address}")), ("LOG__FORMAT", "json".to_owned())];
    let system = TestSystem::prepared(Options { settings, ..Options::default() }).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let ingest = Process::start("event-ingest", &system.variables).await;
    let dispatcher = Process::start("dispatcher", &system.variables).await;
    // More spans than the queue and the batch under way have room for. Nobody wants these events.
    let others: Vec<_> = (0..9_000).map(|_| Event::now(EventType::QuoteClosed, Uuid::nil())).collect();
    system.upstream.publish(&others).await;
    publish(&system, tenant, &untraced()).await;
    receiver.wait_for(1, SOON).await;
    let dropped = || async { Some(counted(&ingest, "dropped").await).filter(|dropped| *dropped >= 1.0) };
    eventually("spans are dropped", SOON, dropped).await;

    let collector = Collector::start_on(address).await;
    let all = || async { counted(&ingest, "exported").await + counted(&ingest, "dropped").await == 9_001.0 };
    eventually("the others are exported", SOON, || async { all().await.then_some(()) }).await;
    assert!(counted(&ingest, "exported").await > 8_000.0);
    for (message, lines) in [("the collector accepts no spans", 1), ("the collector accepts spans again", 1)] {
        assert_eq!(ingest.logged().matches(message).count(), lines, "{message}: {}", ingest.logged());
    }
    let dropped = counted(&ingest, "dropped").await;
    collector.answer(401);
    publish(&system, tenant, &untraced()).await;
    until("a refused span is dropped", SOON, || async { counted(&ingest, "dropped").await == dropped + 1.0 }).await;
    assert!(ingest.logged().contains("it answered 401"));
    for process in [ingest, dispatcher] {
        assert!(process.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ratio_of_nothing_leaves_what_upstream_services_record() {
    let collector = Collector::start().await;
    let settings = vec![collector.endpoint(), ("TRACES__SAMPLE_RATIO", "0".to_owned())];
    let options = Options { schedule: SCHEDULE, settings, ..Options::default() };
    let system = TestSystem::running(options).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    admin.create(&receiver.url("/hook"), &["quote.closed"]).await;
    admin.send("GET", "/api/v1/webhooks/", &[("traceparent", TRACE)], "").await;
    let unrecorded = TRACE.replace("-01", "-00");
    let recorded = publish(&system, tenant, &[("traceparent", text(TRACE))]).await;
    for headers in [&[("traceparent", text(&unrecorded))][..], &untraced()] {
        publish(&system, tenant, headers).await;
    }
    receiver.wait_for(3, SOON).await;
    for service in [Service::Dispatcher, Service::Ingest, Service::Api] {
        system.stop(service).await;
    }
    let spans = collector.spans();
    let seen: Vec<_> = spans.iter().map(|span| (span.service.as_str(), span.parent.as_deref())).collect();
    assert_eq!(seen.len(), 2, "{spans:?}");
    assert!(seen.contains(&("event-ingest", Some(TRACE))) && seen.contains(&("dispatcher", Some(TRACE))), "{seen:?}");
    let kept = "SELECT count(traceparent) FROM events";
    assert_eq!((system.count(kept).await, stored(&system, recorded).await.as_deref()), (2, Some(TRACE)));
}
