//! Tests that need a real broker.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod acks;
mod bindings;
mod confirms;
mod depth;
mod parking;
mod prefetch;

use std::{
    panic::AssertUnwindSafe,
    path::Path,
    time::{Duration, Instant},
};

use broker::{Broker, BrokerConfig, Exchange, Names, Outgoing, Received, Topology};
use futures_util::FutureExt;
use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The broker of `AMQP_URL`, or else the one that `make up` started.
fn amqp_url() -> String {
    std::env::var("AMQP_URL").unwrap_or_else(|_| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local/env");
        let text = std::fs::read_to_string(file).expect("no broker: run `make up` first, or set AMQP_URL");
        let url = text.lines().find_map(|line| line.strip_prefix("export AMQP_URL=")).unwrap();
        url.trim_matches('\'').to_owned()
    })
}

/// Runs a test with a queue prefix of its own, and deletes whatever it declared.
async fn with_broker(test: impl AsyncFnOnce(&Broker)) {
    let prefix = format!("broker-{}", Uuid::new_v4().simple());
    let names = Names::new(&prefix, &format!("{prefix}.business"));
    let config = BrokerConfig {
        uri: amqp_url(),
        password_file: None,
        tls: Default::default(),
        names,
        gaps: Vec::new(),
        confirm_timeout: WAIT_TIMEOUT,
        process: "test of broker",
    };
    let broker = Broker::new(&config).unwrap();
    let outcome = AssertUnwindSafe(test(&broker)).catch_unwind().await;
    broker.depths_close().await;
    let topology = Topology::new(broker.names(), &[]);
    delete(topology.queues.into_iter().map(|queue| queue.name), topology.exchanges).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Opens a connection of the test's own.
async fn connected() -> (Connection, Channel) {
    let connection = Connection::connect(&amqp_url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

async fn delete(queues: impl IntoIterator<Item = String>, exchanges: impl IntoIterator<Item = Exchange>) {
    let (connection, channel) = connected().await;
    for queue in queues {
        channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }
    for exchange in exchanges {
        channel.exchange_delete(exchange.name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }
    connection.close(200, "bye".into()).await.unwrap();
}

/// Publishes messages whose bodies are these numbers, padded to at least `digits` digits.
async fn publish(broker: &Broker, numbers: impl Iterator<Item = usize>, digits: usize) {
    let stop = CancellationToken::new();
    let publisher = broker.publisher(stop.clone());
    let queue = broker.names().main();
    let message = |number: usize| {
        let body = format!("{number:0>digits$}").into_bytes();
        Outgoing { routing_key: queue.clone(), body, ..Default::default() }
    };
    publisher.publish(&numbers.map(message).collect::<Vec<_>>()).await.unwrap();
    stop.cancel();
}

fn number(message: &Received) -> usize {
    String::from_utf8_lossy(&message.body).parse().unwrap()
}

/// Waits until `look` returns true.
async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !look().await {
        assert!(Instant::now() < end, "not within {WAIT_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the queue has exactly `expected` messages ready.
async fn wait_for_depth(broker: &Broker, expected: u32) {
    let queue = broker.names().main();
    let what = format!("{expected} messages are ready");
    eventually(&what, async || broker.depth(&queue).await.unwrap() == Some(expected)).await;
}

/// The broker's counters, as the metrics show them.
fn counters(broker: &Broker) -> String {
    let mut registry = Registry::default();
    broker.stats().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text.lines().filter(|line| !line.starts_with('#') && line.contains("_total ")).collect::<Vec<_>>().join("\n")
}

const NOTHING_WENT_WRONG: &str = "webhooks_broker_reconnects_total 0\n\
    webhooks_broker_publish_failures_total 0\n\
    webhooks_broker_lost_acks_total 0";
