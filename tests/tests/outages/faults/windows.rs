//! Faults that are injected exactly between two steps that belong together.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    outsider::{Outsider, connect_any},
    processes::Process,
    proxy::{Mode, Proxy},
    receiver::{Behaviour, Receiver, Reply, behaviour, fails_then_succeeds},
    system::{Options, Service, Subscriber, System, TestSystem, until_metric},
    wait::{SOON, until},
};
use lapin::options::BasicGetOptions;
use serde_json::json;

use crate::faults::{DISPATCHER, INGEST, LONG, wait_unready};

/// Part of the name of the connections on which the service publishes. Acknowledgements go over others.
const PUBLISHING: &str = "(publish)";

/// Registers one receiver in a system whose API runs. Returns it with an event for it.
async fn subscriber(system: &System, behaviour: Behaviour) -> (Receiver, Event) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(behaviour).await;
    (receiver, Event::now(EventType::QuoteClosed, tenant))
}

/// A further event for the same receiver.
fn another(event: &Event) -> Event {
    Event::now(event.event_type, event.tenant)
}

/// Waits until every delivery has succeeded. The ledger and the receiver must have seen exactly `attempts` attempts.
async fn succeeded(system: &System, receiver: &Receiver, attempts: i64) {
    receiver.wait_for(attempts.try_into().unwrap(), SOON).await;
    wait_for_count(system, 0, "SELECT count(*) FROM deliveries WHERE state <> 'succeeded'").await;
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, attempts);
    assert_eq!(i64::try_from(receiver.received().len()).unwrap(), attempts);
}

async fn wait_for_count(system: &System, expected: i64, statement: &str) {
    system.until_count(statement, expected, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_happens_even_if_its_dispatcher_dies_between_the_commit_and_the_publish() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let (proxy, mut dispatcher) = Process::start_behind_proxy(DISPATCHER, system.variables.clone()).await;
    let slow = behaviour(|_, nth| Reply::status(if nth == 1 { 500 } else { 200 }).after(Duration::from_millis(300)));
    let (receiver, event) = subscriber(&system, slow).await;
    system.upstream.publish(&[event]).await;
    receiver.wait_for(1, SOON).await;
    proxy.set(Mode::HoldRequests(PUBLISHING));
    wait_for_count(&system, 1, "SELECT count(*) FROM deliveries WHERE state = 'retrying' AND attempts = 1").await;
    dispatcher.kill();
    proxy.set(Mode::Refuse);
    system.upstream.wait_ready(&system.names.main(), 1, LONG).await;
    for queue in system.retry_queues() {
        assert_eq!(system.upstream.ready(&queue).await, 0, "the retry was not published");
    }
    let _again = Process::start(DISPATCHER, &system.variables).await;
    succeeded(&system, &receiver, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_delivered_even_if_its_ingest_dies_between_the_commit_and_the_publish() {
    for is_paused_meanwhile in [false, true] {
        let system = TestSystem::serving(Options::default(), [Service::Api, Service::Dispatcher]).await;
        let (proxy, mut ingest) = Process::start_behind_proxy(INGEST, system.variables.clone()).await;
        let (receiver, event) = subscriber(&system, fails_then_succeeds(0)).await;
        let admin = system.admin(event.tenant).await;
        proxy.set(Mode::HoldRequests(PUBLISHING));
        system.upstream.publish(&[event]).await;
        wait_for_count(&system, 1, "SELECT count(*) FROM deliveries").await;
        ingest.kill();
        proxy.set(Mode::Refuse);
        system.upstream.wait_ready(&system.names.events(), 1, LONG).await;
        assert_eq!(receiver.received().len(), 0, "the job was not published");
        let webhook = admin.get("/api/v1/webhooks/").await.json()["data"][0]["id"].as_str().unwrap().to_owned();
        if is_paused_meanwhile {
            let change = json!({"is_active": false, "events": ["quote.cancelled"]});
            assert_eq!(admin.patch(&format!("/api/v1/webhooks/{webhook}/"), &change).await.status, 200);
        }
        let _again = Process::start(INGEST, &system.variables).await;
        if is_paused_meanwhile {
            wait_for_count(&system, 1, "SELECT count(*) FROM held_jobs").await;
            admin.set_active(&webhook, true).await;
        }
        succeeded(&system, &receiver, 1).await;
    }
}

/// Locks a table: whoever writes to it waits until the returned session is dropped.
async fn hold(system: &System, table: &str) -> tokio_postgres::Client {
    system.database_session(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")).await
}

/// Starts a service with one connection to the database, through a proxy.
async fn start_behind_proxy(system: &System, service: Service) -> Proxy {
    let (proxy, url) = Proxy::before(&system.database_url);
    system
        .start_with(service, system.settings_with(&[("DATABASE__URL", &url), ("DATABASE__MAX_CONNECTIONS", "1")]))
        .await;
    proxy
}

/// Publishes an event, lets the service's write to `table` be committed, runs `meanwhile` and loses the commit's
/// answer. The service must have written there before: preparing a statement takes the lock, too.
async fn lose_the_answer(system: &System, proxy: &Proxy, event: Event, table: &str, meanwhile: &str) {
    let hold = hold(system, table).await;
    system.upstream.publish(&[event]).await;
    system.wait_for_locked_out(1).await;
    proxy.set(Mode::HoldAnswers);
    let count = format!("SELECT count(*) FROM {table}");
    let before = system.count(&count).await;
    drop(hold);
    wait_for_count(system, before + 1, &count).await;
    system.database_session(meanwhile).await;
    proxy.cut();
    proxy.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_is_done_even_if_the_answer_to_the_commit_is_lost() {
    for (service, table, failures, meanwhile) in [
        (Service::Ingest, "deliveries", 0_u8, ""),
        // Nobody wants the event any more.
        (Service::Ingest, "deliveries", 0, "UPDATE webhooks SET events = '{quote.cancelled}'"),
        (Service::Dispatcher, "attempts", 1, ""),
    ] {
        let system = TestSystem::prepared(Options::default()).await;
        let attempts = i64::from(failures) + 1;
        system.start(Service::Api).await;
        system.start(if service == Service::Ingest { Service::Dispatcher } else { Service::Ingest }).await;
        let proxy = start_behind_proxy(&system, service).await;
        let (receiver, event) = subscriber(&system, fails_then_succeeds(failures.into())).await;
        system.upstream.publish(std::slice::from_ref(&event)).await;
        succeeded(&system, &receiver, attempts).await;
        lose_the_answer(&system, &proxy, another(&event), table, meanwhile).await;
        succeeded(&system, &receiver, 2 * attempts).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_confirm_is_lost_is_published_again_and_attempted_once() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let variables = system.with(&[("BROKER__CONFIRM_TIMEOUT", "1s")]);
    let (proxy, mut ingest) = Process::start_behind_proxy(INGEST, variables).await;
    let (receiver, event) = subscriber(&system, fails_then_succeeds(0)).await;
    let hold = hold(&system, "deliveries").await;
    system.upstream.publish(&[event]).await;
    system.wait_for_locked_out(1).await;
    proxy.set(Mode::HoldAnswers);
    drop(hold);
    system.upstream.wait_ready(&system.names.main(), 1, LONG).await;
    proxy.cut();
    proxy.set(Mode::Pass);
    until("the job is there again", SOON, || async { system.upstream.ready(&system.names.main()).await > 1 }).await;
    system.start(Service::Dispatcher).await;
    succeeded(&system, &receiver, 1).await;
    let outsider = Outsider::connect(&system.amqp_url, "").await;
    outsider.wait_ready(&system.names.main(), 0, LONG).await;
    assert_eq!(receiver.received().len(), 1);
    outsider.close().await;
    ingest.ask_to_stop();
    assert_eq!(ingest.wait().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_message_is_lost_before_its_secret_is_opened_is_not_attempted() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let (receiver, event) = subscriber(&system, fails_then_succeeds(0)).await;
    system.upstream.publish(&[event]).await;
    let main = system.names.main();
    system.upstream.wait_ready(&main, 1, SOON).await;
    system.stop(Service::Ingest).await;
    // Of a job that was delivered before, a dispatcher asks what it has done.
    let connection = connect_any(&system.amqp_url).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    assert!(channel.basic_get(main.as_str().into(), BasicGetOptions::default()).await.unwrap().is_some());
    connection.close(0, "as if its dispatcher had died".into()).await.unwrap();
    system.upstream.wait_ready(&main, 1, SOON).await;
    let lock = system.database_session("BEGIN; LOCK TABLE suspect_jobs").await;
    let (proxy, dispatcher) = Process::start_behind_proxy(DISPATCHER, system.variables.clone()).await;
    system.wait_for_locked_out(1).await;
    proxy.set(Mode::Refuse);
    wait_unready(&dispatcher, "consumer").await;
    system.upstream.wait_ready(&main, 1, LONG).await;
    drop(lock);
    let lost = r#"webhooks_jobs_skipped_total{reason="message_lost"}"#;
    until_metric(dispatcher.ops, lost, 1.0, SOON).await;
    assert_eq!(receiver.arrived(), 0);
    proxy.set(Mode::Pass);
    receiver.wait_for(1, LONG).await;
    succeeded(&system, &receiver, 1).await;
}
