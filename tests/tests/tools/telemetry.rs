//! Health and metrics of each process.
mod alarms;
mod alerts;
mod dashboards;
mod page;
mod sample;

use std::{net::SocketAddr, time::Duration};

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, System, TestSystem, metric, wait_ready},
    wait::{SOON, eventually},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::telemetry::{
    page::{assert_described, described},
    sample::{ask, read},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_says_that_it_lives_and_what_it_is_ready_for() {
    let system = TestSystem::prepared(Options::default()).await;
    for (service, checks) in [
        (Service::Api, &["broker", "database"][..]),
        (Service::Ingest, &["broker", "consumer", "database"]),
        (Service::Dispatcher, &["broker", "consumer", "database"]),
    ] {
        let ops = system.start(service).await;
        let alive = ask(ops, "/healthz").await;
        assert_eq!((alive.status, alive.text.as_str()), (200, "ok"));
        let ready = ask(ops, "/readyz").await.json();
        let checked: Vec<_> = ready["checks"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!((ready["ready"].as_bool(), checked.as_slice()), (Some(true), checks), "{service:?}");
        assert!(checks.iter().all(|check| ready["checks"][check] == "ok"), "{ready}");
    }
}

/// An increase does not see the first count of a series that begins with it, and that may be the only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_alerts_count_is_there_before_it_counts() {
    let system = TestSystem::prepared(Options::default()).await;
    let mut pages = String::new();
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        pages += &ask(system.start(service).await, "/metrics").await.text;
    }
    let asked_for = alerts::counters_asked_for();
    assert!(asked_for.contains(r#"webhooks_reconcile_jobs_total{cause="broker_lost"}"#), "{asked_for:?}");
    let absent: Vec<_> = asked_for.iter().filter(|counter| !pages.contains(counter.as_str())).collect();
    assert!(absent.is_empty(), "{absent:?} in\n{pages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_its_servers_lives_and_says_which_one_is_away() {
    let system = TestSystem::prepared(Options::default()).await;
    for (variable, url, away) in [
        ("WEBHOOKS__DATABASE__URL", "postgres://user:pa55word@127.0.0.1:1/name", "database"),
        ("WEBHOOKS__BROKER__URL", "amqp://user:pa55word@127.0.0.1:1/name", "broker"),
    ] {
        let mut variables = system.variables.clone();
        variables.insert(variable.to_owned(), url.to_owned());
        for name in ["api-service", "event-ingest", "dispatcher"] {
            let process = Process::spawn(name, &variables);
            let others_are_well = async || {
                tokio::net::TcpStream::connect(process.ops).await.ok()?;
                let ready = ask(process.ops, "/readyz").await;
                let checks = ready.json()["checks"].clone();
                let needed = away == "database" || name != "api-service" || checks["database"] != "ok";
                assert_eq!(ready.status, if needed { 503 } else { 200 }, "{name}: {}", ready.text);
                assert!(checks[away] != "ok" && !ready.text.contains("pa55word"), "{checks}");
                let well =
                    checks.as_object().unwrap().iter().filter(|(check, _)| *check != "consumer" && *check != away);
                well.map(|(_, state)| state).all(|state| state == "ok").then_some(())
            };
            eventually("only one server is away", SOON, others_are_well).await;
            assert_eq!(ask(process.ops, "/healthz").await.status, 200);
            assert!(process.terminate().await.success(), "{name} can be stopped meanwhile");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_finishes_its_work_is_not_ready_for_more() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let ops = system.start(Service::Dispatcher).await;
    let receiver = Receiver::start(&system.ca, behaviour(|_, _| Reply::ok().after(Duration::from_secs(3))));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
    receiver.wait_for(1, SOON).await;
    let draining = eventually("it drains", SOON, async || {
        let ready = ask(ops, "/readyz").await;
        (ready.status == 503).then_some(ready.text)
    });
    let ((), said) = tokio::join!(system.stop(Service::Dispatcher), draining);
    assert!(said.contains("shutting down"), "{said}");
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'").await, 1);
}

/// The pattern of a route: fixed words, and names of what a request puts there.
fn is_pattern(route: &str) -> bool {
    let is_word =
        |part: &str| part.len() < 24 && part.bytes().all(|byte| byte.is_ascii_lowercase() || b"-_.1".contains(&byte));
    let part = |part: &str| is_word(part.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(part));
    route == "unmatched" || (route.starts_with('/') && route.split('/').all(part))
}

fn is_from_a_closed_set(label: &str, value: &str) -> bool {
    match label {
        "le" => value == "+Inf" || value.parse::<f64>().is_ok(),
        "status" => value.len() == 3 && value.parse::<u16>().is_ok(),
        "outcome" => {
            let ingest = ["accepted", "unwanted", "duplicate", "rejected"];
            let spans = ["exported", "dropped", "refused"];
            ingest.contains(&value)
                || spans.contains(&value)
                || domain::OutcomeClass::ALL.iter().any(|class| class.as_str() == value)
        }
        "state" => ["succeeded", "dropped", "cancelled"].contains(&value),
        "reason" => value.len() < 20 && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
        "lane" => ["main", "bulk", "slow"].contains(&value),
        "queue" => {
            let fixed = ["events", "rejected", "unreadable", "dead", "unroutable", "notices"];
            let lanes = ["deliveries", "deliveries.bulk", "deliveries.slow"];
            fixed.contains(&value) || lanes.contains(&value) || value.starts_with("retry.")
        }
        "check" => ["broker", "consumer", "database"].contains(&value),
        "service" => ["api-service", "event-ingest", "dispatcher"].contains(&value),
        "version" => value == env!("CARGO_PKG_VERSION"),
        "call" => value != "unknown" && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
        "cause" => ["broker_lost", "overdue"].contains(&value),
        "task" => ["cancel", "wake", "recover"].contains(&value),
        "result" => {
            let quiet = ["adopted", "done", "doubtful", "failed"];
            quiet.contains(&value) || ["acted", "rebuilt", "lost_again"].contains(&value)
        }
        "type" => value.parse::<domain::NoticeType>().is_ok(),
        "method" => ["GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS", "other"].contains(&value),
        "route" => is_pattern(value),
        "reached" => ["true", "false"].contains(&value),
        _ => false,
    }
}

async fn assert_page(ops: SocketAddr, expected: &[(&str, &str)]) {
    let answer = ask(ops, "/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    let page = answer.text;
    let (types, samples) = read(&page);
    for (family, kind) in expected {
        assert_eq!(types.get(family), Some(kind), "{family} in\n{page}");
        assert!(samples.iter().any(|sample| sample.family == *family), "{family} has no sample");
    }
    for (label, value) in samples.iter().flat_map(|sample| &sample.labels) {
        assert!(is_from_a_closed_set(label, value.trim_matches('"')), "{label}={value}");
    }
    for open in ["://", "localhost", "127.0.0.1", "/hook", "whsec"] {
        assert!(!page.contains(open), "{open} in\n{page}");
    }
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let ids: Vec<_> = words.filter(|word| word.parse::<Uuid>().is_ok() || word.len() >= 32).collect();
    assert!(ids.is_empty(), "{ids:?}");
}

const OF_API: [(&str, &str); 4] = [
    ("webhooks_database_clock_offset_seconds", "gauge"),
    ("webhooks_api_requests", "counter"),
    ("webhooks_api_request_seconds", "histogram"),
    ("webhooks_broker_reconnects", "counter"),
];
const OF_INGEST: [(&str, &str); 6] = [
    ("webhooks_database_clock_offset_seconds", "gauge"),
    ("webhooks_ingest_events", "counter"),
    ("webhooks_ingest_deliveries", "counter"),
    ("webhooks_ingest_batch_size", "histogram"),
    ("webhooks_ingest_batch_seconds", "histogram"),
    ("webhooks_broker_reconnects", "counter"),
];
const OF_DISPATCHER: [(&str, &str); 13] = [
    ("webhooks_delivery_attempts", "counter"),
    ("webhooks_deliveries_finished", "counter"),
    ("webhooks_jobs_skipped", "counter"),
    ("webhooks_jobs_moved_to_bulk_lane", "counter"),
    ("webhooks_attempts_in_flight", "gauge"),
    ("webhooks_lane_ready_jobs", "gauge"),
    ("webhooks_queue_depth", "gauge"),
    ("webhooks_database_clock_offset_seconds", "gauge"),
    ("webhooks_attempt_seconds", "histogram"),
    ("webhooks_first_attempt_delay_seconds", "histogram"),
    ("webhooks_ledger_read_batch_size", "histogram"),
    ("webhooks_ledger_write_batch_size", "histogram"),
    ("webhooks_broker_reconnects", "counter"),
];

async fn wait_for(ops: SocketAddr, name: &str, expected: f64) {
    let what = format!("{name} is {expected}");
    eventually(&what, SOON, async || (metric(ops, name).await == expected).then_some(())).await;
}

/// Publishes three events that succeed, one of them twice, one that fails, one whose receiver is gone, one unwanted and
/// one unusable; then three messages that are no due jobs.
async fn traffic(system: &System, dispatcher: SocketAddr) {
    let tenant = Uuid::new_v4();
    let admin = system.admin(tenant).await;
    let (good, bad) = (Receiver::start(&system.ca, always(200)), Receiver::start(&system.ca, always(500)));
    let gone = Receiver::start(&system.ca, always(200));
    gone.stop().await;
    for (receiver, event_type) in [(&good, "quote.closed"), (&bad, "quote.accepted"), (&gone, "quote.cancelled")] {
        let webhook = admin.create(&receiver.url("/hook"), &[event_type]).await;
        admin.webhook(&webhook.id).await;
    }
    admin.get("/nowhere/0192f0c1-0000-7000-8000-000000000001").await;
    admin.send("BREW", "/api/v1/webhooks/", &[], "").await;
    let three: Vec<_> = (0..3).map(|_| Event::now(EventType::QuoteClosed, tenant)).collect();
    system.upstream.publish(&three).await;
    good.wait_for(3, SOON).await;
    system.upstream.publish(&three[..1]).await;
    let more = [(EventType::QuoteAccepted, tenant), (EventType::QuoteCancelled, tenant)];
    system.upstream.publish(&more.map(|(event_type, tenant)| Event::now(event_type, tenant))).await;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, Uuid::new_v4())]).await;
    system.upstream.publish_raw("quote.closed", b"no event").await;
    wait_for(dispatcher, r#"webhooks_deliveries_finished_total{state="succeeded"}"#, 3.0).await;
    wait_for(dispatcher, r#"webhooks_deliveries_finished_total{state="dropped"}"#, 2.0).await;
    let done = good.received()[0].header("x-service-webhook-id").unwrap().to_owned();
    for id in [done, Uuid::now_v7().to_string(), "no id".to_owned()] {
        let job = format!(r#"{{"v":1,"delivery_id":"{id}","attempt":1}}"#);
        system.upstream.publish_to(&system.names.exchange(), &system.names.main(), job.as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_what_happened_under_labels_from_closed_sets() {
    let options = Options { schedule: "100ms,200ms,300ms,400ms,500ms,600ms", ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let api = system.start(Service::Api).await;
    let ingest = system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    traffic(&system, dispatcher).await;
    for (ops, name, expected) in [
        (api, r#"webhooks_api_requests_total{route="/api/v1/webhooks/",method="POST",status="201"}"#, 3.0),
        (api, r#"webhooks_api_requests_total{route="/api/v1/webhooks/{id}/",method="GET",status="200"}"#, 3.0),
        (api, r#"webhooks_api_request_seconds_count{route="/api/v1/webhooks/{id}/"}"#, 3.0),
        (ingest, r#"webhooks_ingest_events_total{outcome="accepted"}"#, 5.0),
        (ingest, r#"webhooks_ingest_events_total{outcome="duplicate"}"#, 1.0),
        (ingest, r#"webhooks_ingest_events_total{outcome="unwanted"}"#, 1.0),
        (ingest, r#"webhooks_ingest_events_total{outcome="rejected"}"#, 1.0),
        (ingest, "webhooks_ingest_deliveries_total", 5.0),
        (ingest, "webhooks_ingest_batch_size_sum", 8.0),
        (dispatcher, r#"webhooks_delivery_attempts_total{outcome="success"}"#, 3.0),
        (dispatcher, r#"webhooks_delivery_attempts_total{outcome="status"}"#, 7.0),
        (dispatcher, r#"webhooks_delivery_attempts_total{outcome="connect"}"#, 7.0),
        (dispatcher, "webhooks_delivery_attempts_total", 17.0),
        (dispatcher, "webhooks_attempt_seconds_count", 17.0),
        (dispatcher, "webhooks_first_attempt_delay_seconds_count", 5.0),
        (dispatcher, "webhooks_ledger_write_batch_size_sum", 17.0),
        (dispatcher, r#"webhooks_jobs_skipped_total{reason="stale"}"#, 1.0),
        (dispatcher, r#"webhooks_jobs_skipped_total{reason="unknown_delivery"}"#, 1.0),
        (dispatcher, r#"webhooks_jobs_skipped_total{reason="malformed_job"}"#, 1.0),
        (dispatcher, "webhooks_attempts_in_flight", 0.0),
        (dispatcher, "webhooks_consumer_unacknowledged", 0.0),
        (ingest, r#"webhooks_consumer_unacknowledged{queue="events"}"#, 0.0),
        (dispatcher, r#"webhooks_ready_check{check="database"}"#, 1.0),
        (dispatcher, r#"webhooks_slots{lane="slow"}"#, 256.0),
    ] {
        wait_for(ops, name, expected).await;
    }
    assert!(metric(dispatcher, "webhooks_ledger_read_batch_size_sum").await >= 19.0);
    let seconds = metric(dispatcher, "webhooks_first_attempt_delay_seconds_sum").await;
    assert!(seconds > 0.0 && seconds < 5.0 * SOON.as_secs_f64(), "{seconds}");
    let ages = now() - metric(dispatcher, "webhooks_last_success_timestamp_seconds").await;
    assert!((0.0..60.0).contains(&ages), "{ages}");
    wait_for(ingest, "webhooks_partitions_ahead_days", 7.0).await;
    wait_for(ingest, "webhooks_retention_behind_days", 0.0).await;
    assert!(metric(ingest, "webhooks_database_transaction_age").await > 0.0);
    assert!(metric(ingest, "webhooks_database_archive_age_seconds").await > 0.0);
    let calls = metric(ingest, r#"webhooks_ledger_call_seconds_count{call="store"}"#).await;
    assert!(calls >= 1.0, "{calls}");
    let described = described();
    for (ops, expected) in [(api, &OF_API[..]), (ingest, &OF_INGEST), (dispatcher, &OF_DISPATCHER)] {
        assert_page(ops, expected).await;
        assert_described(ops, &described).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delay_of_a_first_attempt_counts_from_acceptance_and_held_jobs_count_apart() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let admin = system.admin(tenant).await;
    let webhook = admin.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let count = |lane: &str| format!("webhooks_first_attempt_delay_seconds_count{{lane=\"{lane}\"}}");

    system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
    let stored = async || (system.count("SELECT count(*) FROM deliveries").await == 1).then_some(());
    eventually("the delivery is stored", SOON, stored).await;
    admin.set_active(&webhook.id, false).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    wait_for(dispatcher, r#"webhooks_jobs_held_total{reason="paused"}"#, 1.0).await;
    admin.set_active(&webhook.id, true).await;
    wait_for(dispatcher, &count("slow"), 1.0).await;
    assert_eq!(metric(dispatcher, &count("main")).await, 0.0);

    let timestamp = (OffsetDateTime::now_utc() - time::Duration::HOUR).format(&Rfc3339).unwrap();
    let late = Event { timestamp, ..Event::now(EventType::QuoteClosed, tenant) };
    system.upstream.publish(&[late]).await;
    wait_for(dispatcher, &count("main"), 1.0).await;
    let delay = metric(dispatcher, r#"webhooks_first_attempt_delay_seconds_sum{lane="main"}"#).await;
    assert!(delay < 60.0, "{delay} s since the event's timestamp");
    let page = ask(dispatcher, "/metrics").await.text;
    assert!(page.contains("le=\"7200.0\""), "an outage of two hours has a class");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_attempts_that_waited_for_the_brake_or_for_a_key_count_in_the_main_lane() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let main = r#"webhooks_first_attempt_delay_seconds_count{lane="main"}"#;

    let operator = system.ledger_as("operator", 1);
    operator.brake_all("a test").await.unwrap();
    wait_for(dispatcher, r#"webhooks_brake{reason="operator"}"#, 1.0).await;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
    let stored = async || (system.count("SELECT count(*) FROM deliveries").await == 1).then_some(());
    eventually("the delivery is stored", SOON, stored).await;
    assert!(operator.brake_release(None).await.unwrap());
    wait_for(dispatcher, main, 1.0).await;

    system.sql("UPDATE webhooks SET secret_sealed = '\\x00'").await;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
    wait_for(dispatcher, main, 2.0).await;
    let in_time = r#"webhooks_first_attempt_delay_seconds_bucket{le="30.0",lane="main"}"#;
    assert_eq!(metric(dispatcher, in_time).await, 1.0, "the attempt that waits for a key is late already");
}

fn now() -> f64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_depths_of_the_queues_that_should_be_empty_are_shown() {
    let system = TestSystem::prepared(Options::default()).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let of = |queue: &str| format!("webhooks_queue_depth{{queue=\"{queue}\"}}");
    eventually("each queue has a depth", SOON, || async {
        let page = ask(dispatcher, "/metrics").await.text;
        let depths = page.lines().filter(|line| line.starts_with("webhooks_queue_depth{"));
        let (retries, others): (Vec<_>, Vec<_>) = depths.partition(|line| line.contains("retry."));
        (retries.len() == 1 && others.len() == 6).then_some(())
    })
    .await;
    let names = &system.names;
    for (label, queue, count) in [
        ("rejected", names.rejected(), 3),
        ("unreadable", names.unreadable(), 1),
        ("dead", names.dead(), 2),
        ("notices", "webhook.paused".to_owned(), 2),
    ] {
        for _ in 0..count {
            system.upstream.publish_to(&names.exchange(), &queue, b"{}").await;
        }
        wait_for(dispatcher, &of(label), f64::from(count)).await;
    }
    system.upstream.publish_to(&names.exchange(), "no such queue", b"{}").await;
    wait_for(dispatcher, &of("unroutable"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_flight_rises_and_falls_and_a_lost_consumer_is_counted() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    let ingest = system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let receiver = Receiver::start(&system.ca, behaviour(|_, _| Reply::ok().after(Duration::from_secs(2))));
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let event = || Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(&[event(), event(), event()]).await;
    wait_for(dispatcher, "webhooks_attempts_in_flight", 3.0).await;
    wait_for(dispatcher, "webhooks_attempts_in_flight", 0.0).await;

    for (ops, queue) in [(ingest, system.names.events()), (dispatcher, system.names.main())] {
        assert_eq!(metric(ops, "webhooks_broker_reconnects_total").await, 0.0);
        system.upstream.delete_queue(&queue).await;
        wait_for(ops, "webhooks_broker_reconnects_total", 1.0).await;
        wait_ready(ops).await;
    }
    receiver.behave(always(200));
    system.upstream.publish(&[event()]).await;
    receiver.wait_for(4, SOON).await;
}
