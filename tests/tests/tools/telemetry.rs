//! The metrics of each process.

use std::net::SocketAddr;

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, eventually},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    alarms::rules::counters_asked_for,
    metrics_page::{
        assert_described, described,
        sample::{ask, read},
    },
};

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

/// Asserts that a page of metrics is well formed, and that its labels hold nothing that a client or a receiver chooses.
async fn assert_page(ops: SocketAddr) {
    let answer = ask(ops, "/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    let page = answer.text;
    for (label, value) in read(&page).1.iter().flat_map(|sample| &sample.labels) {
        assert!(is_from_a_closed_set(label, value.trim_matches('"')), "{label}={value}");
    }
    for open in ["://", "localhost", "127.0.0.1", "/hook", "whsec"] {
        assert!(!page.contains(open), "{open} in\n{page}");
    }
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let ids: Vec<_> = words.filter(|word| word.parse::<Uuid>().is_ok() || word.len() >= 32).collect();
    assert!(ids.is_empty(), "{ids:?}");
}

/// Publishes three events that succeed, one of them twice, one that fails, one whose receiver is gone, one unwanted and
/// one unusable; then three messages that are no due jobs, one that the broker could have parked, and one without a queue.
async fn traffic(system: &System, dispatcher: SocketAddr) {
    let tenant = Uuid::new_v4();
    let admin = system.admin(tenant).await;
    let gate = CancellationToken::new();
    let answer = Reply::ok().once(&gate);
    let good = Receiver::start(&system.ca, behaviour(move |_, _| answer.clone()));
    let bad = Receiver::start(&system.ca, always(500));
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
    until_metric(dispatcher, "webhooks_attempts_in_flight", 3.0, SOON).await;
    gate.cancel();
    good.wait_for(3, SOON).await;
    system.upstream.publish(&three[..1]).await;
    let more = [(EventType::QuoteAccepted, tenant), (EventType::QuoteCancelled, tenant)];
    system.upstream.publish(&more.map(|(event_type, tenant)| Event::now(event_type, tenant))).await;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, Uuid::new_v4())]).await;
    system.upstream.publish_raw("quote.closed", b"no event").await;
    until_metric(dispatcher, r#"webhooks_deliveries_finished_total{state="succeeded"}"#, 3.0, SOON).await;
    until_metric(dispatcher, r#"webhooks_deliveries_finished_total{state="dropped"}"#, 2.0, SOON).await;
    let done = good.received()[0].header("x-service-webhook-id").unwrap().to_owned();
    let (names, upstream) = (&system.names, &system.upstream);
    for id in [done, Uuid::now_v7().to_string(), "no id".to_owned()] {
        let job = format!(r#"{{"v":1,"delivery_id":"{id}","attempt":1}}"#);
        upstream.publish_to(&names.exchange(), &names.main(), job.as_bytes()).await;
    }
    for key in [&*names.unreadable(), "no such queue"] {
        upstream.publish_to(&names.exchange(), key, b"{}").await;
    }
}

/// Asserts what processes that have just begun show: their checks, and zeros. An increase does not see the first count of a
/// series that begins with it, and that may be the only one.
async fn assert_begun<const N: usize>(processes: [(SocketAddr, &[&str]); N]) {
    let mut pages = String::new();
    for (ops, checks) in processes {
        let ready = ask(ops, "/readyz").await.json();
        assert!(ready["checks"].as_object().unwrap().keys().eq(checks), "{ready}");
        pages += &ask(ops, "/metrics").await.text;
    }
    let asked_for = counters_asked_for();
    assert!(asked_for.contains(r#"webhooks_reconcile_jobs_total{cause="broker_lost"}"#), "{asked_for:?}");
    let absent: Vec<_> = asked_for.iter().filter(|counter| !pages.contains(counter.as_str())).collect();
    assert!(absent.is_empty(), "{absent:?} in\n{pages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_there_before_they_count_what_happens_under_labels_from_closed_sets() {
    let options = Options { schedule: "100ms,200ms,300ms,400ms,500ms,600ms", timeout: "30s", ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let api = system.start(Service::Api).await;
    let ingest = system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let consuming = &["broker", "consumer", "database"];
    assert_begun([(api, &["broker", "database"]), (ingest, consuming), (dispatcher, consuming)]).await;
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
        (dispatcher, r#"webhooks_queue_depth{queue="events"}"#, 0.0),
        (dispatcher, r#"webhooks_queue_depth{queue="retry."#, 0.0),
        (dispatcher, r#"webhooks_queue_depth{queue="rejected"}"#, 1.0),
        (dispatcher, r#"webhooks_queue_depth{queue="unreadable"}"#, 1.0),
        (dispatcher, r#"webhooks_queue_depth{queue="dead"}"#, 2.0),
        (dispatcher, r#"webhooks_queue_depth{queue="unroutable"}"#, 1.0),
        (dispatcher, r#"webhooks_queue_depth{queue="notices"}"#, 5.0), // Three webhooks are new, and two drop.
        (dispatcher, r#"webhooks_ready_check{check="database"}"#, 1.0),
        (dispatcher, r#"webhooks_slots{lane="slow"}"#, 256.0),
    ] {
        until_metric(ops, name, expected, SOON).await;
    }
    assert!(metric(dispatcher, "webhooks_ledger_read_batch_size_sum").await >= 19.0);
    let seconds = metric(dispatcher, "webhooks_first_attempt_delay_seconds_sum").await;
    assert!(seconds > 0.0 && seconds < 5.0 * SOON.as_secs_f64(), "{seconds}");
    let ages = now() - metric(dispatcher, "webhooks_last_success_timestamp_seconds").await;
    assert!((0.0..60.0).contains(&ages), "{ages}");
    until_metric(ingest, "webhooks_partitions_ahead_days", 7.0, SOON).await;
    until_metric(ingest, "webhooks_retention_behind_days", 0.0, SOON).await;
    assert!(metric(ingest, "webhooks_database_transaction_age").await > 0.0);
    assert!(metric(ingest, "webhooks_database_archive_age_seconds").await > 0.0);
    let calls = metric(ingest, r#"webhooks_ledger_call_seconds_count{call="store"}"#).await;
    assert!(calls >= 1.0, "{calls}");
    let described = described();
    for ops in [api, ingest, dispatcher] {
        assert_page(ops).await;
        assert_described(ops, &described).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delay_of_a_first_attempt_counts_from_acceptance_in_the_lane_where_it_waited() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let Subscriber { tenant, api, receiver: _receiver, webhook, .. } = system.subscriber(always(200)).await;
    let delay = |part: &str, lane: &str| format!("webhooks_first_attempt_delay_seconds_{part}lane=\"{lane}\"}}");
    let count = |lane: &str| delay("count{", lane);
    let store = async |number: i64| {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        let stored = async || (system.count("SELECT count(*) FROM deliveries").await == number).then_some(());
        eventually("the delivery is stored", SOON, stored).await;
    };

    store(1).await;
    api.set_active(&webhook, false).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    until_metric(dispatcher, r#"webhooks_jobs_held_total{reason="paused"}"#, 1.0, SOON).await;
    api.set_active(&webhook, true).await;
    until_metric(dispatcher, &count("slow"), 1.0, SOON).await;
    assert_eq!(metric(dispatcher, &count("main")).await, 0.0, "a held job counts apart");

    let timestamp = (OffsetDateTime::now_utc() - time::Duration::HOUR).format(&Rfc3339).unwrap();
    let late = Event { timestamp, ..Event::now(EventType::QuoteClosed, tenant) };
    system.upstream.publish(&[late]).await;
    until_metric(dispatcher, &count("main"), 1.0, SOON).await;
    let seconds = metric(dispatcher, &delay("sum{", "main")).await;
    assert!(seconds < 60.0, "{seconds} s since the event's timestamp");
    let page = ask(dispatcher, "/metrics").await.text;
    assert!(page.contains("le=\"7200.0\""), "an outage of two hours has a class");

    let operator = system.ledger_as("operator", 1);
    operator.brake_all("a test").await.unwrap();
    until_metric(dispatcher, r#"webhooks_brake{reason="operator"}"#, 1.0, SOON).await;
    store(3).await;
    assert!(operator.brake_release(None).await.unwrap());
    until_metric(dispatcher, &count("main"), 2.0, SOON).await;

    system.sql("UPDATE webhooks SET secret_sealed = '\\x00'").await;
    store(4).await;
    until_metric(dispatcher, &count("main"), 3.0, SOON).await;
    let in_time = metric(dispatcher, &delay("bucket{le=\"30.0\",", "main")).await;
    assert_eq!(in_time, 2.0, "the attempt that waits for a key is late already");
}

fn now() -> f64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}
