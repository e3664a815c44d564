//! A job that crashes its dispatcher, or that no dispatcher can do, is parked. The other jobs are not.
use std::time::{Duration, Instant};

use domain::{EventType, Job};
use end_to_end::{
    commands::{done, webhookctl},
    events::Event,
    history::made,
    outsider::text_header,
    processes::Process,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric, wait_ready},
    wait::{SOON, eventually, until},
};
use serde_json::{Value, json};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(90);
const DISPATCHER: &str = "dispatcher";
/// The deaths by one poison job: three in company, of which the third is noted, and three alone.
const POISON_DEATHS: usize = 6;
/// The most deaths by each further one: it may be noted, and outlive the first one's death, before it begins alone.
const MAX_FURTHER_DEATHS: usize = 4;

async fn dead(system: &System) -> u32 {
    system.upstream.ready(&system.names.dead()).await
}

/// Waits until all deliveries of a webhook have succeeded.
async fn wait_succeeded(system: &System, webhook: &str, count: i64) {
    let done = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}' AND state = 'succeeded'");
    system.until_count(&done, count, LONG).await;
}

/// Starts dispatchers until `jobs` jobs are parked. Returns how many died, and the process that lives. Their dead letters
/// may be more: one that dies of another job may have published a letter and not acknowledged its job.
async fn until_put_aside(system: &System, jobs: i64, most: usize) -> (usize, Process) {
    let variables = system.with(&[("WEBHOOKS_FAULT_ABORT", "/poison")]);
    let mut deaths = 0;
    loop {
        let process = tokio::sync::Mutex::new(Process::spawn(DISPATCHER, &variables));
        let ended = eventually("it dies, or puts the jobs aside", LONG, || async {
            let parked = "SELECT count(*) FROM suspect_jobs WHERE dead_reason = 'poison'";
            match (process.lock().await.exit_status().is_some(), system.count(parked).await) {
                (true, _) => Some(true),
                (false, parked) if parked == jobs && i64::from(dead(system).await) >= jobs => Some(false),
                (false, _) => None,
            }
        });
        if !ended.await {
            return (deaths, process.into_inner());
        }
        deaths += 1;
        assert!(deaths <= most, "{jobs} poison jobs crash {most} dispatchers at most");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_jobs_of_one_message_are_put_aside_one_by_one() {
    const INNOCENT: usize = 14;
    let together = Options::with([("INGEST__BATCH_ABOVE", "0")]);
    let system = TestSystem::serving(together, [Service::Api]).await;
    // The dispatcher declares the queues.
    system.start(Service::Dispatcher).await;
    system.stop(Service::Dispatcher).await;
    system.start(Service::Ingest).await;
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    let admin = system.admin(tenant).await;
    for number in 0..INNOCENT {
        admin.create(&receiver.url(&format!("/innocent/{number}")), &["quote.closed"]).await;
    }
    for number in 0..2 {
        admin.create(&receiver.url(&format!("/poison/{number}")), &["quote.closed"]).await;
    }
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let queue = system.names.main();
    until("the jobs wait", SOON, || async { system.upstream.ready(&queue).await == 2 }).await;

    let (deaths, survivor) = until_put_aside(&system, 2, POISON_DEATHS + MAX_FURTHER_DEATHS).await;
    println!("put aside after {deaths} deaths");
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", INNOCENT as i64, LONG).await;
    let parked = "SELECT count(*) FROM suspect_jobs WHERE dead_reason = 'poison'";
    assert_eq!(system.count(parked).await, 2);
    wait_ready(survivor.ops).await;
    assert_eq!(survivor.terminate().await.code(), Some(0));
    assert!(receiver.received().iter().all(|one| one.path.starts_with("/innocent")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_crashes_its_dispatcher_is_put_aside_and_those_in_its_company_are_delivered() {
    const INNOCENT: usize = 16;
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, behaviour(|_, _| Reply::ok().after(Duration::from_millis(200))));
    let admin = system.admin(tenant).await;
    let innocent = admin.create(&receiver.url("/innocent"), &["quote.closed"]).await;
    let poison = admin.create(&receiver.url("/poison"), &["quote.accepted"]).await;
    let mut events = Event::closed(tenant, INNOCENT);
    events.insert(INNOCENT / 2, Event::now(EventType::QuoteAccepted, tenant));
    system.upstream.publish(&events).await;
    let stored = i64::try_from(events.len()).unwrap();
    system.until_count("SELECT count(*) FROM deliveries", stored, LONG).await;

    let (deaths, survivor) = until_put_aside(&system, 1, POISON_DEATHS).await;
    wait_succeeded(&system, &innocent.id, i64::try_from(INNOCENT).unwrap()).await;
    wait_ready(survivor.ops).await;
    println!("put aside after {deaths} deaths");
    assert_eq!((deaths, dead(&system).await), (POISON_DEATHS, 1));
    assert!(receiver.received().iter().all(|one| one.path == "/innocent"));
    let id: String =
        system.sql(&format!("SELECT id::text FROM deliveries WHERE webhook_id = '{}'", poison.id)).await[0].get(0);
    // A death between an outcome and the end of its note leaves the note behind, which means nothing any more.
    let noted = "SELECT s.delivery_id::text, s.dead_reason FROM suspect_jobs AS s JOIN deliveries AS d \
                     ON d.id = s.delivery_id AND d.state <> 'succeeded'";
    let noted: Vec<(String, Option<String>)> =
        system.sql(noted).await.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(noted, [(id.clone(), Some("poison".to_owned()))]);
    let line: Value = serde_json::from_str(&done(&system.variables, &["dead", "list"]).await).unwrap();
    assert_eq!((&line["reason"], &line["delivery_id"]), (&"poison".into(), &id.as_str().into()), "{line}");
    assert_eq!(survivor.terminate().await.code(), Some(0));

    // A dispatcher without the fault gets the job again.
    system.start(Service::Dispatcher).await;
    let requeued = done(&system.variables, &["dead", "requeue"]).await;
    assert_eq!(requeued, "handed 1 message(s) to the dispatchers again\n");
    wait_succeeded(&system, &poison.id, 1).await;
    let noted = format!("SELECT count(*) FROM suspect_jobs WHERE delivery_id = '{id}'");
    assert_eq!(system.count(&noted).await, 0);
}

/// The jobs of several messages wait in a dispatcher for a place. They return to the queue whenever it stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_of_a_backlog_is_a_suspect_after_graceful_restarts() {
    const JOBS: usize = 600;
    let settings = [
        ("INGEST__BATCH_ABOVE", "0"),
        ("DISPATCHER__MAX_IN_FLIGHT", "16"),
        ("DISPATCHER__WEBHOOK_SHARE", "1"),
        ("DISPATCHER__TENANT_SHARE", "1"),
    ];
    let system = TestSystem::serving(Options::with(settings), [Service::Api, Service::Ingest]).await;
    let Subscriber { tenant, receiver, webhook, .. } =
        system.subscriber(behaviour(|_, _| Reply::ok().after(Duration::from_millis(600)))).await;
    system.upstream.publish(&Event::closed(tenant, JOBS)).await;
    system.until_count("SELECT count(*) FROM deliveries", JOBS as i64, LONG).await;
    for _ in 0..5 {
        let before = receiver.arrived();
        system.start(Service::Dispatcher).await;
        until("some are attempted", LONG, || async { receiver.arrived() > before }).await;
        system.stop(Service::Dispatcher).await;
    }
    assert!(receiver.arrived() < JOBS, "a backlog is left");
    receiver.behave(always(200));
    let ops = system.start(Service::Dispatcher).await;
    wait_succeeded(&system, &webhook, JOBS as i64).await;
    let held = r#"webhooks_jobs_held_total{reason="suspect"}"#;
    assert_eq!(metric(ops, held).await, 0.0, "none waits for its turn");
    system.until_count("SELECT count(*) FROM suspect_jobs", 0, SOON).await;
    assert_eq!((receiver.arrived(), dead(&system).await), (JOBS, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_task_panics_is_put_aside_and_its_dispatcher_goes_on() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let dispatcher = Process::start(DISPATCHER, &system.with(&[("WEBHOOKS_FAULT_PANIC", "/panics")])).await;
    let Subscriber { tenant, api: admin, receiver, webhook: fine, .. } = system.subscriber(always(200)).await;
    admin.create(&receiver.url("/panics"), &["quote.closed"]).await;
    system.upstream.publish(&Event::closed(tenant, 10)).await;
    wait_succeeded(&system, &fine, 10).await;
    until("the others are put aside", SOON, || async { dead(&system).await == 10 }).await;
    until_metric(dispatcher.ops, r#"webhooks_jobs_skipped_total{reason="panicked"}"#, 10.0, SOON).await;
    until_metric(dispatcher.ops, "webhooks_attempts_in_flight", 0.0, SOON).await;
    let parked = system.count("SELECT count(*) FROM suspect_jobs WHERE dead_reason = 'panicked'").await;
    assert_eq!(parked, 10);
    assert_eq!(dispatcher.terminate().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_at_which_ingest_panics_is_rejected_and_the_others_of_its_batch_are_stored() {
    const FINE: usize = 30;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let Subscriber { tenant, receiver: _receiver, .. } = system.subscriber(always(200)).await;
    let of = |note| Event::now(EventType::QuoteClosed, tenant).with_data(json!({"note": note}).to_string());
    let bad = [of("oops-Read"), of("oops-Store")];
    let mut events: Vec<_> = (0..FINE).map(|_| of("fine")).collect();
    drop(events.splice(FINE / 2..FINE / 2, bad.clone()));
    system.upstream.publish(&events).await;
    let ingest = Process::start("event-ingest", &system.with(&[("WEBHOOKS_FAULT_PANIC", "oops")])).await;
    system.until_count("SELECT count(*) FROM deliveries", FINE as i64, LONG).await;
    let rejected = system.names.rejected();
    system.upstream.wait_ready(&rejected, 2, SOON).await;
    let mut bodies = Vec::new();
    for message in system.upstream.take_all(&rejected).await {
        let [reason, key] = ["x-rejected-reason", "x-rejected-routing-key"].map(|name| text_header(&message, name));
        assert_eq!((reason.as_str(), key.as_str()), ("panicked", "quote.closed"));
        bodies.push(message.delivery.data);
    }
    bodies.sort_unstable();
    let mut untouched = bad.map(|event| event.to_message());
    untouched.sort_unstable();
    assert_eq!(bodies, untouched);
    let judged = async |outcome: &str| {
        metric(ingest.ops, &format!("webhooks_ingest_events_total{{outcome=\"{outcome}\"}}")).await
    };
    assert_eq!(judged("accepted").await, FINE as f64);
    assert_eq!(judged("rejected").await, 2.0);
    assert_eq!(ingest.terminate().await.code(), Some(0));
    system.upstream.wait_ready(&system.names.events(), 0, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_at_many_events_parks_ten_a_minute_and_the_next_version_takes_the_others() {
    const BAD: u32 = 40;
    let options = Options::with([("SHUTDOWN__DEADLINE", "1s")]);
    let system = TestSystem::serving(options, [Service::Api]).await;
    let Subscriber { tenant, receiver: _receiver, .. } = system.subscriber(always(200)).await;
    let of = |note| Event::now(EventType::QuoteClosed, tenant).with_data(json!({"note": note}).to_string());
    let mut events: Vec<_> =
        (0..BAD).map(|number| of(if number % 2 == 0 { "oops-Read" } else { "oops-Store" })).collect();
    events.push(of("fine"));
    let began = Instant::now();
    let ingest = Process::start("event-ingest", &system.with(&[("WEBHOOKS_FAULT_PANIC", "oops")])).await;
    system.upstream.publish(&events).await;
    let stored = "SELECT count(*) FROM deliveries";
    system.until_count(stored, 1, LONG).await;
    let rejected = system.names.rejected();
    until("ten are parked", LONG, || async { system.upstream.ready(&rejected).await >= 10 }).await;
    until("it says so", LONG, || async { ingest.logged().contains("ingest panics at more than 10 events a minute") })
        .await;
    assert_eq!(ingest.terminate().await.code(), Some(0));
    let parked = system.upstream.ready(&rejected).await;
    let most = 10 + began.elapsed().as_secs() / 6;
    assert!(u64::from(parked) <= most, "{parked} are parked, and at most {most} may be");
    system.upstream.wait_ready(&system.names.events(), BAD - parked, SOON).await;

    system.start(Service::Ingest).await;
    let all = i64::from(BAD - parked) + 1;
    system.until_count(stored, all, LONG).await;
    assert_eq!(system.upstream.ready(&rejected).await, parked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_job_that_is_discarded_leaves_a_cancelled_delivery_and_no_note() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let tenant = Uuid::new_v4();
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await;
    made(&system, tenant, &webhook.id, 2, "'pending'").await;
    let ids = system.sql("SELECT id::text FROM deliveries ORDER BY id").await;
    let id: String = ids[0].get(0);
    system.sql(&format!("INSERT INTO suspect_jobs VALUES ('{id}', 0, now(), 'poison')")).await;
    let job = Job { delivery: id.parse().unwrap(), attempt: 8 };
    for body in [job.to_bytes(), b"no job".to_vec()] {
        system.upstream.publish_to(&system.names.exchange(), &system.names.dead(), &body).await;
    }
    let said = done(&system.variables, &["dead", "discard", "--yes"]).await;
    assert!(said.contains(&id) && said.contains("no job"), "what is deleted is printed: {said}");
    assert!(said.contains("\ndiscarded 2 message(s)"), "{said}");
    assert_eq!(dead(&system).await, 0);
    let cancelled = format!("SELECT count(*) FROM deliveries WHERE state = 'cancelled' AND id = '{id}'");
    assert_eq!(system.count(&cancelled).await, 1);
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'pending'").await, 1);
    assert_eq!(system.count("SELECT count(*) FROM suspect_jobs").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_delivery_whose_dead_letter_was_purged_is_found_by_the_doctor_and_released_by_a_requeue() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let tenant = Uuid::new_v4();
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await;
    made(&system, tenant, &webhook.id, 2, "'pending'").await;
    let parked = "INSERT INTO suspect_jobs SELECT id, 0, now() - interval '2 minutes', 'poison' FROM deliveries";
    system.sql(parked).await;
    let kept: String = system.sql("SELECT id::text FROM deliveries ORDER BY id").await[0].get(0);
    let job = Job { delivery: kept.parse().unwrap(), attempt: 8 };
    done(&system.variables, &["dead", "list"]).await;
    system.upstream.publish_to(&system.names.exchange(), &system.names.dead(), &job.to_bytes()).await;
    let purged = async || {
        let report = webhookctl(&system.variables, &["doctor", "--json"]).await;
        let report: Value = serde_json::from_str(&report.out).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["id"] == "queues.purged")
    };
    let found = purged().await.expect("one of two has no dead letter");
    assert!(found["remedy"].as_str().unwrap().contains("webhookctl dead requeue"), "{found}");
    let said = done(&system.variables, &["dead", "requeue", "--limit", "0"]).await;
    assert_eq!(said, "handed 0 message(s) to the dispatchers again\n", "a part says nothing about the rest");
    assert_eq!(system.count("SELECT count(*) FROM suspect_jobs").await, 2);
    system.upstream.wait_ready(&system.names.dead(), 1, SOON).await;
    let said = done(&system.variables, &["dead", "requeue"]).await;
    assert!(said.starts_with("released 1 deliveries without a message"), "{said}");
    assert!(said.ends_with("handed 1 message(s) to the dispatchers again\n"), "{said}");
    assert_eq!(system.count("SELECT count(*) FROM suspect_jobs").await, 0);
    assert_eq!(purged().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_delivery_the_ledger_lost_is_made_once_the_ledger_has_it_again() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(always(200)).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    let id: String = system.sql("SELECT id::text FROM deliveries").await[0].get(0);
    system.sql("CREATE TABLE lost AS SELECT * FROM deliveries").await;
    system.sql("DELETE FROM deliveries").await;
    system.start(Service::Dispatcher).await;
    let job = Job { delivery: id.parse().unwrap(), attempt: 8 };
    system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job.to_bytes()).await;
    until("it is put aside", SOON, || async { dead(&system).await == 1 }).await;
    let line: Value = serde_json::from_str(&done(&system.variables, &["dead", "list"]).await).unwrap();
    assert_eq!((&line["reason"], &line["delivery_id"]), (&"unknown_delivery".into(), &id.into()), "{line}");

    system.sql("INSERT INTO deliveries SELECT * FROM lost").await;
    done(&system.variables, &["dead", "requeue"]).await;
    wait_succeeded(&system, &webhook, 1).await;
    assert_eq!((dead(&system).await, receiver.received().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_secret_does_not_open_is_due_later_by_the_ledger_too() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let ops = system
        .start_with(
            Service::Dispatcher,
            system.settings_with(&[("SECRETS__KEYS", &format!("other:{}", hex::encode([9; 32])))]),
        )
        .await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    until_metric(ops, r#"webhooks_jobs_skipped_total{reason="sealed"}"#, 1.0, SOON).await;
    until_metric(ops, "webhooks_attempts_in_flight", 0.0, SOON).await;
    let later = "SELECT count(*) FROM deliveries WHERE state = 'pending' AND attempts = 0 \
                     AND next_attempt_at BETWEEN now() + interval '20 s' AND now() + interval '60 s'";
    assert_eq!(system.count(later).await, 1);
    assert_eq!(receiver.received().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_written_twice_counts_once() {
    let system = TestSystem::shared().await;
    let (ledger, delivery) = (system.ledger_as("test", 1), Uuid::now_v7().into());
    for (tries, counted) in [(1, 1), (1, 1), (2, 2), (2, 2), (1, 2)] {
        assert_eq!(ledger.suspect_mark(delivery, tries).await.unwrap(), counted);
    }
    assert_eq!(ledger.suspect_tries(delivery).await.unwrap(), (2, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_paused_while_its_job_is_noted_gets_nothing() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let Subscriber { tenant, api: admin, receiver, webhook, .. } =
        system.subscriber(behaviour(|_, _| Reply::ok().after(LONG))).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    // A job that was delivered twice before is noted when it begins.
    for killed in 1..=2 {
        let mut dispatcher = Process::start(DISPATCHER, &system.variables).await;
        receiver.wait_for(killed, LONG).await;
        dispatcher.kill();
    }
    let lock = system.database_session("BEGIN; LOCK TABLE suspect_jobs").await;
    let dispatcher = Process::start(DISPATCHER, &system.variables).await;
    system.wait_for_locked_out(1).await;
    let pause = admin.patch(&format!("/api/v1/webhooks/{webhook}/"), &json!({"is_active": false})).await;
    assert_eq!(pause.status, 200);
    // What it has read grows old.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(lock);
    let held = r#"webhooks_jobs_held_total{reason="paused"}"#;
    until_metric(dispatcher.ops, held, 1.0, SOON).await;
    assert_eq!(receiver.received().len(), 2);
}
