//! The broker and the database die, freeze and fill up in the middle of 2,000 events.

use std::time::{Duration, Instant};

use end_to_end::{
    processes::Process,
    servers::{PrivateServers, Server},
    system::{Options, TestSystem, metric, wait_ready},
    wait::until,
};
use uuid::Uuid;

use crate::faults::{
    LONG, Processes, said, settings,
    storm::{EVENTS, Storm, points},
    wait_unready,
};

fn options(servers: &PrivateServers) -> Options {
    Options { settings: settings(), servers: Some(servers.servers().clone()), ..Options::default() }
}

async fn reconnects(process: &Process) -> f64 {
    metric(process.ops, "webhooks_broker_reconnects_total").await
}

async fn publish_failures(process: &Process) -> f64 {
    metric(process.ops, "webhooks_broker_publish_failures_total").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_broker_loses_nothing_and_every_process_comes_back_by_itself() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish();
    storm.steady.wait_for(points(4, 1, EVENTS)[0], LONG).await;
    servers.kill(Server::Rabbitmq);
    assert!(storm.unfinished().await > 0, "it was killed in the middle");
    for process in [&processes.ingest, &processes.dispatcher] {
        assert_eq!(wait_unready(process, "broker").await, "not connected");
    }
    until("api-service is ready without the broker", LONG, || async {
        said(&processes.api, "broker").await == (200, "not connected".to_owned())
    })
    .await;
    let other = system.admin(Uuid::new_v4()).await;
    let registered = other.create(&storm.steady.url("/other"), &["quote.closed"]).await;
    other.webhook(&registered.id).await;
    servers.restart(Server::Rabbitmq);
    let back = Instant::now();
    for process in processes.all() {
        wait_ready(process.ops).await;
        assert!(reconnects(process).await >= 1.0, "reconnects are counted");
    }
    println!("ready {:.1} s after the broker", back.elapsed().as_secs_f64());
    publishing.rest().await;
    let tally = storm.settle("broker killed", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0, "what was in flight is not attempted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_database_loses_nothing_and_every_process_comes_back_by_itself() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish();
    for point in points(5, 2, EVENTS) {
        storm.steady.wait_for(point, LONG).await;
        servers.kill(Server::Postgres);
        for process in processes.all() {
            wait_unready(process, "database").await;
        }
        servers.restart(Server::Postgres);
        let back = Instant::now();
        for process in processes.all() {
            wait_ready(process.ops).await;
        }
        println!("ready {:.1} s after the database", back.elapsed().as_secs_f64());
        assert!(storm.unfinished().await > 0, "it was killed in the middle");
    }
    publishing.rest().await;
    let tally = storm.settle("database killed", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0, "what was in flight is recorded when the database is back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_frozen_for_longer_than_a_confirm_may_take_loses_nothing() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish();
    storm.steady.wait_for(points(6, 1, EVENTS)[0], LONG).await;
    servers.freeze(Server::Rabbitmq);
    let frozen = Instant::now();
    until("a confirm did not come in time", LONG, || async { publish_failures(&processes.dispatcher).await >= 1.0 })
        .await;
    println!("given up {:.1} s after the freeze", frozen.elapsed().as_secs_f64());
    assert!(storm.unfinished().await > 0, "it was frozen in the middle");
    servers.thaw(Server::Rabbitmq);
    for process in processes.all() {
        wait_ready(process.ops).await;
    }
    publishing.rest().await;
    let tally = storm.settle("broker frozen", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_broker_closes_are_built_again() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish();
    storm.steady.wait_for(points(7, 1, EVENTS)[0], LONG).await;
    servers.rabbitmqctl(&["close_all_connections", "--vhost", "/", "a test"]);
    until("all connections of each are built again", LONG, || async {
        let (ingest, dispatcher) = tokio::join!(reconnects(&processes.ingest), reconnects(&processes.dispatcher));
        ingest >= 2.0 && dispatcher >= 2.0
    })
    .await;
    publishing.rest().await;
    let tally = storm.settle("connections closed", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0);
}

/// Restores the broker's memory limit, however the test ends.
struct MemoryAlarm<'a>(&'a PrivateServers);

impl<'a> MemoryAlarm<'a> {
    fn raise(servers: &'a PrivateServers) -> Self {
        servers.rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"]);
        Self(servers)
    }
}

impl Drop for MemoryAlarm<'_> {
    fn drop(&mut self) {
        self.0.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_broker_is_out_of_memory_publishing_waits_and_nothing_is_lost() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    // Far more attempts than are made until a slow machine has raised the alarm.
    storm.answer_after(Duration::from_secs(3));
    let publishing = storm.publish();
    storm.steady.wait_for(1, LONG).await;
    let alarm = MemoryAlarm::raise(&servers);
    assert_eq!(wait_unready(&processes.dispatcher, "broker").await, "blocked by the broker");
    assert_eq!(said(&processes.dispatcher, "consumer").await.1, "ok", "consuming goes on");
    assert!(!storm.upstream().confirms(storm.first()).await, "the broker takes no messages");
    until("several publishes have failed", LONG, || async { publish_failures(&processes.dispatcher).await >= 4.0 })
        .await;
    assert!(storm.unfinished().await > 0, "it stalled in the middle");
    assert_eq!(reconnects(&processes.dispatcher).await, 0.0, "a blocked connection is kept: another is blocked too");
    assert_eq!(processes.dispatcher.threads("lapin-io-loop"), 5, "one for each lane, one to publish, one for depths");
    storm.answer_after(Duration::from_millis(10));
    drop(alarm);
    for process in processes.all() {
        wait_ready(process.ops).await;
    }
    publishing.rest().await;
    let tally = storm.settle("broker out of memory", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0);
}
