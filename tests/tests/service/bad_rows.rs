//! One bad row is nobody else's problem, and an error of the server is no row's.
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    events::Event,
    history::{held, made},
    outsider::connect_any,
    outsider::text_header,
    receiver::{Receiver, always},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, eventually, until},
};
use lapin::options::BasicGetOptions;
use serde_json::json;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(90);
/// As many as one statement has.
const JOBS: i64 = 256;
/// As many jobs may be parked in a minute.
const PARKED: u32 = 10;

struct Setting {
    tenant: Uuid,
    webhook: String,
    receiver: Receiver,
}

/// A webhook with jobs that wait for a dispatcher.
async fn waiting(system: &System, jobs: i64) -> Setting {
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(always(200)).await;
    publish(system, tenant, jobs).await;
    let queue = system.names.main();
    until("the jobs wait", LONG, || async { i64::from(system.upstream.ready(&queue).await) == jobs }).await;
    Setting { tenant, webhook, receiver }
}

async fn publish(system: &System, tenant: Uuid, events: i64) {
    let events: Vec<_> = (0..events).map(|_| Event::now(EventType::QuoteClosed, tenant)).collect();
    system.upstream.publish(&events).await;
}

/// The delivery of one in the middle.
async fn bad_one(system: &System, number: u32) -> String {
    system.sql(&format!("SELECT id::text FROM deliveries ORDER BY id OFFSET {number} LIMIT 1")).await[0].get(0)
}

/// Has the server fail with an error at each change of a table ("INSERT ON attempts") for which `condition` holds.
async fn fails(system: &System, change: &str, sqlstate: &str, condition: &str) {
    the_trigger(system, &format!("RAISE EXCEPTION 'on purpose' USING ERRCODE = '{sqlstate}'")).await;
    let trigger = format!("CREATE OR REPLACE TRIGGER fails BEFORE {change} FOR EACH ROW");
    system.sql(&format!("{trigger} WHEN ({condition}) EXECUTE FUNCTION fails()")).await;
}

async fn works_again(system: &System) {
    the_trigger(system, "RETURN NEW").await;
}

/// Has the trigger do something else, without a lock that a statement under way could wait for.
async fn the_trigger(system: &System, does: &str) {
    let function = "CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS";
    system.sql(&format!("{function} $$ BEGIN {does}; END $$")).await;
}

async fn succeeded(system: &System, count: i64) {
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", count, LONG).await;
}

async fn dead(system: &System) -> u32 {
    system.upstream.ready(&system.names.dead()).await
}

/// Waits until these jobs are parked for a reason, each with a detail that contains this.
async fn parked<const N: usize>(system: &System, reason: &str, jobs: [(&str, &str); N]) {
    until("they are parked", SOON, || async { dead(system).await as usize == N }).await;
    let messages = system.upstream.take_all(&system.names.dead()).await;
    for (delivery, detail) in jobs {
        let of_it = messages.iter().find(|one| String::from_utf8_lossy(&one.data).contains(delivery)).unwrap();
        assert_eq!(text_header(of_it, "x-dead-reason"), reason);
        assert!(text_header(of_it, "x-dead-detail").contains(detail), "{}", text_header(of_it, "x-dead-detail"));
        let noted =
            format!("SELECT count(*) FROM suspect_jobs WHERE delivery_id = '{delivery}' AND dead_reason = '{reason}'");
        assert_eq!(system.count(&noted).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_cannot_be_read_is_one_jobs_affair() {
    const DELIVERY: &str = "UPDATE deliveries SET event_type = 'of.tomorrow' WHERE id = $1";
    const EVENT: &str = "UPDATE events SET event_type = 'of.tomorrow' \
                         WHERE id = (SELECT event_id FROM deliveries WHERE id = $1)";
    const TIME: &str = "UPDATE deliveries SET first_failed_at = 'infinity' WHERE id = $1";
    let system = TestSystem::prepared(Options::default()).await;
    let setting = waiting(&system, JOBS).await;
    let (one, other) = (bad_one(&system, 100).await, bad_one(&system, 150).await);
    for (change, bad) in [(TIME, &one), (EVENT, &other), (DELIVERY, &other)] {
        system.sql(&change.replace("$1", &format!("'{bad}'"))).await;
    }
    system.start(Service::Dispatcher).await;
    succeeded(&system, JOBS - 2).await;
    parked(&system, "unreadable", [(&one, "cannot read a value"), (&other, "events.event_type")]).await;
    assert_eq!(setting.receiver.received().len(), 254);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_cannot_be_recorded_is_parked_and_not_made_again() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = waiting(&system, JOBS).await;
    let bad = bad_one(&system, 100).await;
    fails(&system, "INSERT ON attempts", "22003", &format!("NEW.delivery_id = '{bad}'")).await;
    system.start(Service::Dispatcher).await;
    succeeded(&system, JOBS - 1).await;
    parked(&system, "unrecorded", [(&bad, "SQLSTATE 22003")]).await;
    // Nor by the next dispatcher.
    system.stop(Service::Dispatcher).await;
    system.start(Service::Dispatcher).await;
    publish(&system, setting.tenant, 1).await;
    succeeded(&system, JOBS).await;
    assert_eq!(setting.receiver.received().len(), 257);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_held_is_one_jobs_affair() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = waiting(&system, JOBS).await;
    let bad = bad_one(&system, 100).await;
    fails(&system, "INSERT ON held_jobs", "23514", &format!("NEW.delivery_id = '{bad}'")).await;
    let admin = system.admin(setting.tenant).await;
    let path = format!("/api/v1/webhooks/{}/", setting.webhook);
    assert_eq!(admin.patch(&path, &json!({"is_active": false})).await.status, 200);
    system.start(Service::Dispatcher).await;
    system.until_count("SELECT count(*) FROM held_jobs", JOBS - 1, LONG).await;
    parked(&system, "unheld", [(&bad, "SQLSTATE 23514")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_jobs_that_fail_by_their_own_data_few_are_parked() {
    let system = TestSystem::prepared(Options::default()).await;
    let _setting = waiting(&system, 30).await;
    fails(&system, "INSERT ON attempts", "22003", "true").await;
    let dispatcher = system.start(Service::Dispatcher).await;
    until("one is parked", SOON, || async { dead(&system).await >= 1 }).await;
    let first = Instant::now();
    until("others are", LONG, || async { dead(&system).await >= PARKED + 2 }).await;
    let least = Duration::from_secs(11);
    assert!(first.elapsed() > least, "ten at first, then one every six seconds: {:?}", first.elapsed());
    works_again(&system).await;
    let done = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
    let parked = eventually("the others succeed", LONG, || async {
        let parked = dead(&system).await;
        (system.count(done).await + i64::from(parked) == 30).then_some(parked)
    })
    .await;
    assert!((PARKED + 2..PARKED + 7).contains(&parked), "{parked}");
    let skipped = r#"webhooks_jobs_skipped_total{reason="unrecorded"}"#;
    until_metric(dispatcher, skipped, f64::from(parked), SOON).await;
}

/// The number of times that the dispatcher has tried to record attempts.
async fn writes(dispatcher: SocketAddr) -> f64 {
    metric(dispatcher, r#"webhooks_ledger_call_seconds_count{call="record_distinct"}"#).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_server_parks_nothing_and_loses_nothing() {
    const EVENTS: i64 = 50;
    let system = TestSystem::prepared(Options::default()).await;
    let setting = waiting(&system, 1).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    succeeded(&system, 1).await;
    let mut made = 1;
    // A full disk, a lock that was not had in time, a connection too many, and a missing column.
    for sqlstate in ["53100", "55P03", "53300", "42703"] {
        match sqlstate {
            "42703" => drop(system.sql("ALTER TABLE attempts RENAME COLUMN response_body TO head").await),
            _ => fails(&system, "INSERT ON attempts", sqlstate, "true").await,
        }
        let before = writes(dispatcher).await;
        publish(&system, setting.tenant, EVENTS).await;
        made += EVENTS;
        until("all attempts are made", SOON, || async { i64::try_from(setting.receiver.arrived()).unwrap() == made })
            .await;
        until("they cannot be recorded", SOON, || async { writes(dispatcher).await >= before + 4.0 }).await;
        assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'pending'").await, EVENTS);
        match sqlstate {
            "42703" => drop(system.sql("ALTER TABLE attempts RENAME COLUMN head TO response_body").await),
            _ => works_again(&system).await,
        }
        succeeded(&system, made).await;
    }
    assert_eq!((dead(&system).await, i64::try_from(setting.receiver.arrived()).unwrap()), (0, made));
}

/// The broker delivers a message again while its job is being parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_being_parked_as_unrecorded_is_not_attempted_when_its_message_comes_again() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = waiting(&system, 1).await;
    let bad: String = system.sql("SELECT id::text FROM deliveries").await[0].get(0);
    system.sql(&format!("INSERT INTO suspect_jobs VALUES ('{bad}', 0, now(), 'unrecorded')")).await;
    let connection = connect_any(&system.variables["WEBHOOKS__BROKER__URL"]).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let queue = system.names.main();
    assert!(channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await.unwrap().is_some());
    connection.close(0, "as if its dispatcher had died".into()).await.unwrap();
    system.upstream.wait_ready(&queue, 1, SOON).await;
    system.start(Service::Dispatcher).await;
    parked(&system, "unrecorded", [(&bad, "delivered its message again")]).await;
    assert_eq!(setting.receiver.arrived(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_job_that_cannot_be_published_holds_up_no_other_one() {
    let system = TestSystem::serving(
        Options::with([("RECONCILE__INTERVAL", "100ms"), ("RECONCILE__GRACE", "1s")]),
        [Service::Api],
    )
    .await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    let mut webhooks = Vec::new();
    for path in ["/bad", "/well"] {
        let webhook = admin.create(&receiver.url(path), &["quote.closed"]).await.id;
        made(&system, tenant, &webhook, 20, "'pending'").await;
        webhooks.push(webhook);
    }
    let fifth = "SELECT id::text FROM deliveries WHERE webhook_id = '{}' ORDER BY id OFFSET 4 LIMIT 1";
    let bad: String = system.sql(&fifth.replace("{}", &webhooks[0])).await[0].get(0);
    // Nobody but who publishes held jobs leaves the number of attempts as it is.
    let publishes = format!("NEW.id = '{bad}' AND NEW.attempts = OLD.attempts");
    fails(&system, "UPDATE ON deliveries", "XX001", &publishes).await;
    for webhook in &webhooks {
        held(&system, webhook).await;
    }
    system.start(Service::Dispatcher).await;
    let of = |path: &str| receiver.received().iter().filter(|one| one.path == path).count();
    until("all others arrive", LONG, || async { of("/well") == 20 && of("/bad") == 19 }).await;
    works_again(&system).await;
    system.start(Service::Ingest).await;
    until("lost-job detection publishes it", LONG, || async { of("/bad") == 20 }).await;
    assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_leaves_out_a_row_that_cannot_be_read_and_a_request_for_it_is_told_of_the_upgrade() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let tenant = Uuid::new_v4();
    let admin = system.admin(tenant).await;
    let mut webhooks = Vec::new();
    for _ in 0..3 {
        webhooks.push(admin.create("https://localhost/", &["quote.closed"]).await.id);
    }
    let [_, bad, webhook] = &webhooks[..] else { panic!("{webhooks:?}") };
    made(&system, tenant, webhook, 3, "'succeeded'").await;
    let path = format!("/api/v1/webhooks/{webhook}/");
    for name in ["Bad", "Another"] {
        assert_eq!(admin.patch(&path, &json!({"name": name})).await.status, 200);
    }
    for change in [
        format!("UPDATE webhooks SET events = '{{of.tomorrow}}' WHERE id = '{bad}'"),
        format!("UPDATE history SET action = 'imagined' WHERE webhook_id = '{webhook}' AND details->'name'->>'to' = 'Bad'"),
        "UPDATE deliveries SET event_type = 'of.tomorrow' WHERE id = (SELECT id FROM deliveries ORDER BY id LIMIT 1 OFFSET 1)"
            .to_owned(),
    ] {
        system.sql(&change).await;
    }
    // Page by page, too: no entry is missing after the one that is left out.
    for list in ["/api/v1/webhooks/".to_owned(), format!("{path}history/"), format!("{path}deliveries/")] {
        for query in ["limit=1", "limit=2", "limit=200"] {
            assert_eq!(admin.whole(&list, query).await.len(), 2, "{list}?{query}");
        }
    }
    let bad = format!("/api/v1/webhooks/{bad}/");
    let delivery: String =
        system.sql("SELECT id::text FROM deliveries WHERE event_type = 'of.tomorrow'").await[0].get(0);
    for answer in [
        admin.get(&bad).await,
        admin.patch(&bad, &json!({"name": "Other"})).await,
        admin.get(&format!("{path}deliveries/{delivery}/")).await,
    ] {
        let problem = answer.json();
        assert_eq!((answer.status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("when the service has been upgraded"), "{problem}");
    }
    assert_eq!(admin.delete(&bad).await.status, 204);
}
