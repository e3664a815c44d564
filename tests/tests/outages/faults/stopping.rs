//! SIGTERM with work in flight.

use std::time::{Duration, Instant};

use end_to_end::{
    events::Event,
    processes::{Process, with_api_address},
    proxy::{Mode, Proxy},
    receiver::{Behaviour, Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::{SOON, eventually, until},
};
use tokio_util::sync::CancellationToken;

use crate::faults::{API, DISPATCHER, INGEST, LONG, wait_unready};

/// `shutdown.deadline` in the tests in which it passes.
const DEADLINE: Duration = Duration::from_secs(4);
/// How long a process may take beyond the deadline. It takes about three seconds; a busy machine adds to that.
const GRACE: Duration = Duration::from_secs(15);

/// Answers all requests once `gate` is cancelled, so that the acknowledgements come together, just before the end.
fn all_once(gate: &CancellationToken) -> Behaviour {
    let gate = gate.clone();
    behaviour(move |_, _| Reply::ok().once(&gate))
}

/// A receiver of one event type, and events for it.
async fn subscriber(system: &System, behaviour: Behaviour, events: usize) -> (Receiver, Vec<Event>) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(behaviour).await;
    (receiver, Event::closed(tenant, events))
}

/// No attempt fails because the gate opens late.
fn options() -> Options {
    Options { timeout: "40s", ..Options::default() }
}

/// Tells a process that cannot finish to stop, then opens `gate`. It must end in time, with exit code 0.
async fn stops_in_time(mut process: Process, gate: &CancellationToken) {
    let began = Instant::now();
    process.ask_to_stop();
    gate.cancel();
    let status = process.wait().await;
    let took = began.elapsed();
    assert!(took < DEADLINE + GRACE, "it took {took:?}");
    assert_eq!(status.code(), Some(0), "{}", process.logged());
}

async fn all_succeed(system: &System, deliveries: i64) {
    until("every delivery has succeeded", LONG, || async {
        let done = system.count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'").await;
        done == deliveries
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_is_told_to_stop_finishes_what_is_in_flight_and_leaves_the_rest() {
    let system = TestSystem::serving(options(), [Service::Api, Service::Ingest]).await;
    let gate = CancellationToken::new();
    let (receiver, events) = subscriber(&system, all_once(&gate), 300).await;
    system.upstream.publish(&events).await;
    system.upstream.wait_ready(&system.names.main(), 300, LONG).await;
    let shares = [("DISPATCHER__WEBHOOK_SHARE", "1"), ("DISPATCHER__TENANT_SHARE", "1")];
    let variables = system.with(&[("DISPATCHER__MAX_IN_FLIGHT", "200"), shares[0], shares[1]]);
    let mut dispatcher = Process::start(DISPATCHER, &variables).await;
    receiver.wait_for(100, SOON).await;
    dispatcher.ask_to_stop();
    assert_eq!(wait_unready(&dispatcher, "process").await, "shutting down");
    let is_left_to_others = async || {
        let [main, slow] = [system.names.main(), system.names.slow()];
        let queued = system.upstream.ready(&main).await + system.upstream.ready(&slow).await;
        let held = system.count("SELECT count(*) FROM held_jobs").await;
        (i64::from(queued) + held == 300 - i64::try_from(receiver.arrived()).unwrap()).then_some(())
    };
    eventually("the rest is on a queue or held while attempts last", LONG, &is_left_to_others).await;
    assert!(dispatcher.exit_status().is_none());
    gate.cancel();
    assert_eq!(dispatcher.wait().await.code(), Some(0));
    let sent = i64::try_from(receiver.received().len()).unwrap();
    assert!(sent < 300, "jobs without a place are left to others");
    assert_eq!(system.count("SELECT count(*) FROM attempts WHERE outcome = 'success'").await, sent);
    eventually("the rest is on a queue or held", LONG, &is_left_to_others).await;
    let _next = Process::start(DISPATCHER, &variables).await;
    all_succeed(&system, 300).await;
    assert_eq!(receiver.received().len(), 300, "nothing was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ingest_that_is_told_to_stop_finishes_what_it_began_and_leaves_the_rest() {
    const EVENTS: u32 = 3_000;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (_receiver, events) = subscriber(&system, always(200), EVENTS.try_into().unwrap()).await;
    system.upstream.publish(&events).await;
    // A message for each job, so that they can be counted.
    let many = "1000000";
    let settings = [("INGEST__BATCH", "4"), ("INGEST__BATCH_ABOVE", many), ("INGEST__FLOOD", many)];
    let variables = system.with(&settings);
    let ingest = Process::start(INGEST, &variables).await;
    let stored = async || u32::try_from(system.count("SELECT count(*) FROM deliveries").await).unwrap();
    until("ingest is in the middle", SOON, || async { stored().await > 100 }).await;
    assert_eq!(ingest.terminate().await.code(), Some(0));
    let done = stored().await;
    println!("{done} of {EVENTS} events were ingested");
    assert!(done < EVENTS, "it was stopped in the middle");
    system.upstream.wait_ready(&system.names.events(), EVENTS - done, LONG).await;
    assert_eq!(system.upstream.ready(&system.names.main()).await, done, "each has its job");
    let _next = Process::start(INGEST, &variables).await;
    system.upstream.wait_ready(&system.names.main(), EVENTS, LONG).await;
    assert_eq!((stored().await, system.upstream.ready(&system.names.events()).await), (EVENTS, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ingest_that_is_told_to_stop_requeues_what_it_has_not_begun_while_it_finishes_what_it_has() {
    /// No more than an ingest holds.
    const EVENTS: u32 = 90;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (_receiver, events) = subscriber(&system, always(200), EVENTS.try_into().unwrap()).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let settings = system.with(&[("BROKER__URL", &url), ("INGEST__BATCH", "4")]);
    let mut ingest = Process::start(INGEST, &settings).await;
    let stored = async || u32::try_from(system.count("SELECT count(*) FROM deliveries").await).unwrap();
    let queue = system.names.events();
    let lock = system.database_session("BEGIN; LOCK TABLE deliveries IN SHARE MODE").await;
    // So ingest is told to stop while it does not know yet that the broker has opened its second consumer.
    proxy.set(Mode::Late(Duration::from_millis(500)));
    system.upstream.publish(&events).await;
    system.upstream.wait_ready(&queue, 0, LONG).await;
    ingest.ask_to_stop();
    assert_eq!(wait_unready(&ingest, "process").await, "shutting down");
    proxy.set(Mode::Pass);
    until("most are on the queue again", LONG, || async { system.upstream.ready(&queue).await > EVENTS / 2 }).await;
    assert!(ingest.exit_status().is_none(), "some are under way");
    drop(lock);
    assert_eq!(ingest.wait().await.code(), Some(0));
    let left = EVENTS - stored().await;
    assert!((EVENTS / 2..EVENTS).contains(&left), "{left} are left");
    system.upstream.wait_ready(&queue, left, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_without_its_database_stops_in_time_and_acknowledges_nothing() {
    let system = TestSystem::serving(options(), [Service::Api, Service::Ingest]).await;
    let gate = CancellationToken::new();
    let (receiver, events) = subscriber(&system, all_once(&gate), 20).await;
    let (proxy, url) = Proxy::before(&system.database_url);
    let variables = system.with(&[("DATABASE__URL", &url), ("SHUTDOWN__DEADLINE", "4s")]);
    let dispatcher = Process::start(DISPATCHER, &variables).await;
    system.upstream.publish(&events).await;
    receiver.wait_for(20, SOON).await;
    proxy.set(Mode::Refuse);
    stops_in_time(dispatcher, &gate).await;
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 0);
    system.upstream.wait_ready(&system.names.main(), 20, LONG).await;
    receiver.behave(always(200));
    let _next = Process::start(DISPATCHER, &system.variables).await;
    all_succeed(&system, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ingest_and_an_api_without_their_database_stop_in_time_and_acknowledge_nothing() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (_receiver, events) = subscriber(&system, always(200), 50).await;
    let (proxy, url) = Proxy::before(&system.database_url);
    let mut variables = system.with(&[("DATABASE__URL", &url), ("SHUTDOWN__DEADLINE", "4s")]);
    let ingest = Process::start(INGEST, &variables).await;
    variables.extend(with_api_address(&system).await.remove_entry("WEBHOOKS__API__LISTEN"));
    let api = Process::start(API, &variables).await;
    proxy.set(Mode::Refuse);
    system.upstream.publish(&events).await;
    system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
    let gate = CancellationToken::new();
    tokio::join!(stops_in_time(ingest, &gate), stops_in_time(api, &gate));
    system.upstream.wait_ready(&system.names.events(), 50, LONG).await;
    assert_eq!(system.count("SELECT count(*) FROM deliveries").await, 0);
    let _next = Process::start(INGEST, &system.variables).await;
    system.upstream.wait_ready(&system.names.main(), 50, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_whose_broker_is_frozen_stops_in_time_and_what_it_recorded_is_not_sent_again() {
    let system = TestSystem::serving(options(), [Service::Api, Service::Ingest]).await;
    let gate = CancellationToken::new();
    let (receiver, events) = subscriber(&system, all_once(&gate), 20).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let variables = system.with(&[("BROKER__URL", &url), ("SHUTDOWN__DEADLINE", "4s")]);
    let dispatcher = Process::start(DISPATCHER, &variables).await;
    system.upstream.publish(&events).await;
    receiver.wait_for(20, SOON).await;
    proxy.set(Mode::Stall);
    stops_in_time(dispatcher, &gate).await;
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 20);
    proxy.set(Mode::Refuse);
    system.upstream.wait_ready(&system.names.main(), 20, LONG).await;
    let _next = Process::start(DISPATCHER, &system.variables).await;
    system.upstream.wait_ready(&system.names.main(), 0, LONG).await;
    all_succeed(&system, 20).await;
    assert_eq!(receiver.received().len(), 20, "nothing was sent twice");
}
