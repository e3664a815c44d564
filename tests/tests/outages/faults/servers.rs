//! The broker and the database die, freeze and fill up in the middle of 2,000 events.

use std::{collections::HashSet, time::Instant};

use end_to_end::{
    events::Event,
    history::{held, made},
    processes::Process,
    receiver::{Received, Receiver, Reply, always, behaviour},
    servers::{PrivateServers, Server},
    system::{Options, Subscriber, System, TestSystem, metric, wait_ready},
    upstream::Upstream,
    wait::until,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::faults::{
    LONG, Processes, said, settings,
    storm::{EVENTS, Storm, points},
    wait_unready,
};

/// The attempts that fail while the broker takes no messages.
const FAILING: usize = 8;
/// The held jobs that are released while the database dies.
const HELD: usize = 300;

async fn reconnects(process: &Process) -> f64 {
    metric(process.ops, "webhooks_broker_reconnects_total").await
}

async fn publish_failures(process: &Process) -> f64 {
    metric(process.ops, "webhooks_broker_publish_failures_total").await
}

async fn all_ready(processes: &Processes) {
    let began = Instant::now();
    for process in processes.all() {
        wait_ready(process.ops).await;
    }
    println!("ready after {:.1} s", began.elapsed().as_secs_f64());
}

/// Attempts that wait. They fail when the token is cancelled, so that their retries are to be published, and succeed the
/// next time.
struct Failing {
    fail: CancellationToken,
    receiver: Receiver,
    webhook: String,
}

impl Failing {
    async fn start(system: &System) -> Self {
        let fail = CancellationToken::new();
        let gate = fail.clone();
        let fails = behaviour(move |_, nth| Reply::status(if nth == 1 { 500 } else { 200 }).once(&gate));
        let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(fails).await;
        // Over a connection of its own: the broker has closed the system's.
        Upstream::of(system).publish(&Event::closed(tenant, FAILING)).await;
        receiver.wait_for(FAILING, LONG).await;
        Self { fail, receiver, webhook }
    }

    /// Waits until all have succeeded, and asserts that each was attempted twice.
    async fn succeed(&self, system: &System) {
        all_succeeded(system, &self.webhook, FAILING).await;
        assert_eq!((ids(&self.receiver).len(), self.receiver.received().len()), (FAILING, 2 * FAILING));
    }
}

async fn all_succeeded(system: &System, webhook: &str, count: usize) {
    let done = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}' AND state = 'succeeded'");
    system.until_count(&done, count as i64, LONG).await;
}

fn ids(receiver: &Receiver) -> HashSet<String> {
    let id = |one: Received| one.header("x-service-webhook-id").unwrap().to_owned();
    receiver.received().into_iter().map(id).collect()
}

/// The broker is out of memory, closes all connections, freezes and dies, one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_broker_does_nothing_is_lost_and_every_process_comes_back_by_itself() {
    let servers = PrivateServers::borrow().await;
    let options = Options { settings: settings(), timeout: "5m", ..Options::default() };
    let system = TestSystem::prepared(servers.options(options)).await;
    let processes = Processes::start(&system).await;
    let Processes { api, ingest, dispatcher, .. } = &processes;
    let storm = Storm::prepare(&system).await;
    let at_the_alarm = Failing::start(&system).await;
    let publishing = storm.publish();
    storm.steady.wait_for(1, LONG).await;
    servers.rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"]);
    at_the_alarm.fail.cancel();
    assert_eq!(wait_unready(dispatcher, "broker").await, "blocked by the broker");
    assert_eq!(said(dispatcher, "consumer").await.1, "ok", "consuming goes on");
    assert!(!storm.upstream().confirms(storm.first()).await, "the broker takes no messages");
    until("several publishes have failed", LONG, || async { publish_failures(dispatcher).await >= 4.0 }).await;
    assert_eq!(reconnects(dispatcher).await, 0.0, "a blocked connection is kept: another is blocked too");
    assert_eq!(dispatcher.threads("lapin-io-loop"), 5, "one for each lane, one to publish, one for depths");
    servers.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]);
    all_ready(&processes).await;

    let points = points(4, 3, EVENTS);
    storm.steady.wait_for(points[0], LONG).await;
    servers.rabbitmqctl(&["close_all_connections", "--vhost", "/", "a test"]);
    until("all connections of each are built again", LONG, || async {
        reconnects(ingest).await >= 2.0 && reconnects(dispatcher).await >= 2.0
    })
    .await;
    all_ready(&processes).await;

    storm.steady.wait_for(points[1], LONG).await;
    let frozen = Failing::start(&system).await;
    let failures = publish_failures(dispatcher).await;
    servers.freeze(Server::Rabbitmq);
    frozen.fail.cancel();
    until("a confirm did not come in time", LONG, || async { publish_failures(dispatcher).await > failures }).await;
    servers.thaw(Server::Rabbitmq);
    all_ready(&processes).await;

    storm.steady.wait_for(points[2], LONG).await;
    let [before, of_api] = [reconnects(dispatcher).await, reconnects(api).await];
    let killed = Failing::start(&system).await;
    servers.kill(Server::Rabbitmq);
    killed.fail.cancel();
    for process in [ingest, dispatcher] {
        assert_eq!(wait_unready(process, "broker").await, "not connected");
    }
    until("api-service is ready without the broker", LONG, || async {
        said(api, "broker").await == (200, "not connected".to_owned())
    })
    .await;
    let other = system.admin(Uuid::new_v4()).await;
    let registered = other.create(&storm.steady.url("/other"), &["quote.closed"]).await;
    other.webhook(&registered.id).await;
    servers.restart(Server::Rabbitmq);
    all_ready(&processes).await;
    assert!(reconnects(dispatcher).await > before && reconnects(api).await > of_api, "reconnects are counted");
    publishing.rest().await;
    for failing in [at_the_alarm, frozen, killed] {
        failing.succeed(&system).await;
    }
    let tally = storm.settle("a broker with faults", &[dispatcher]).await;
    assert_eq!(tally.repeated, 0, "what was in flight is not attempted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_database_loses_nothing_and_every_process_comes_back_by_itself() {
    let servers = PrivateServers::borrow().await;
    // The relay releases the held jobs of a second tenant in small steps.
    let settings = [settings(), vec![("API__RECOVER_PER_SECOND", "40".to_owned())]].concat();
    let system = TestSystem::prepared(servers.options(Options { settings, timeout: "5m", ..Options::default() })).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let Subscriber { tenant, webhook, receiver, .. } = system.subscriber(always(200)).await;
    let publishing = storm.publish();
    for (fault, point) in points(5, 2, EVENTS).into_iter().enumerate() {
        storm.steady.wait_for(point, LONG).await;
        let killed = Failing::start(&system).await;
        if fault == 0 {
            made(&system, tenant, &webhook, HELD, "'pending'").await;
            held(&system, &webhook).await;
            receiver.wait_for(1, LONG).await;
        }
        servers.kill(Server::Postgres);
        killed.fail.cancel();
        assert!(fault > 0 || receiver.arrived() < HELD, "some are still held");
        for process in processes.all() {
            wait_unready(process, "database").await;
        }
        servers.restart(Server::Postgres);
        all_ready(&processes).await;
        killed.succeed(&system).await;
    }
    publishing.rest().await;
    all_succeeded(&system, &webhook, HELD).await;
    assert_eq!(ids(&receiver).len(), HELD);
    let left = "SELECT (SELECT count(*) FROM held_jobs) + (SELECT count(*) FROM held_webhooks)";
    system.until_count(left, 0, LONG).await;
    let tally = storm.settle("database killed", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0, "what was in flight is recorded when the database is back");
}
