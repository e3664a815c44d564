//! The bare pipe: consume a quorum queue, POST over HTTPS, acknowledge. No ledger, no signature, one hop. The service
//! is compared with it. It is measured just before and just after the service.

mod pipe;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use lapin::{
    Connection, ConnectionProperties,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::json;
use service_kit::Settings;

pub(crate) use pipe::run;

use crate::{
    bench::Bench,
    child::Child,
    latencies::Latencies,
    load::Load,
    round::{PATIENCE, Round},
    sink::Sink,
    usage::{Usage, of_process},
};

const GROUP: &str = "bare";

/// The pipe, in a process of its own.
pub(crate) struct Bare {
    child: Child,
    queue: String,
    _connection: Connection,
}

impl Bare {
    /// Starts the pipe with the prefetch of a dispatcher and a pool that keeps every connection.
    pub(crate) async fn start(amqp_url: &str, sink: &Sink) -> Self {
        let queue = "bench-bare".to_owned();
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(amqp_url, properties).await.expect("the broker answers");
        let channel = connection.create_channel().await.expect("a channel opens");
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.expect("it can be deleted");
        channel.queue_declare(queue.as_str().into(), durable, arguments).await.expect("a queue can be declared");
        let required =
            [("WEBHOOKS__DATABASE__URL", "postgres://nobody@localhost/none"), ("WEBHOOKS__BROKER__URL", amqp_url)];
        let required: HashMap<_, _> = required.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = Settings::from_sources(None, required).expect("the defaults are good");
        let order = json!({
            "amqp": amqp_url, "queue": queue, "ca": sink.ca, "url": sink.url(&format!("/ok/{GROUP}")),
            "prefetch": settings.dispatcher.max_in_flight,
            // As many as there are slots, for as long as a round may take: new connections must not lower this ceiling.
            "max_idle": settings.dispatcher.max_in_flight,
            "idle_seconds": PATIENCE.as_secs(),
        });
        let (child, ready) = Child::start("pipe", &[order.to_string()]);
        assert_eq!(ready, "ready");
        Self { child, queue, _connection: connection }
    }

    fn usage(&self, bench: &Bench) -> Usage {
        let mut usage = Usage::default();
        usage.add("pipe", of_process(self.child.pid()));
        usage.add("rabbitmq", bench.rabbitmq_cpu());
        usage
    }

    /// Publishes as fast as possible until all have arrived.
    pub(crate) async fn flood(&self, bench: &Bench, size: usize, count: u64) -> Round {
        let load = Load::of_bodies(&self.queue, size);
        let (before, usage, outside) = (bench.sink.seen(), self.usage(bench), bench.outside());
        let began = Instant::now();
        bench.flood(&load, count, 1).await;
        let seconds = began.elapsed().as_secs_f64();
        let (usage, outside) = (self.usage(bench).since(&usage), bench.outside().since(&outside));
        let connections = bench.sink.seen().connections - before.connections;
        bench.sink.take(GROUP);
        Round { deliveries: count, seconds, usage, outside, connections }
    }

    pub(crate) async fn pace(&self, bench: &Bench, size: usize, per_second: f64, lasting: Duration) -> Latencies {
        let load = Load::of_bodies(&self.queue, size);
        bench.paced(&bench.publisher, load, GROUP, per_second, lasting).await
    }

    /// Like `pace`, with the CPU per message in microseconds.
    pub(crate) async fn cost(
        &self,
        bench: &Bench,
        size: usize,
        per_second: f64,
        lasting: Duration,
    ) -> (Latencies, f64) {
        let usage = self.usage(bench);
        let latencies = self.pace(bench, size, per_second, lasting).await;
        let usage = self.usage(bench).since(&usage);
        (latencies, usage.sum() / (per_second * lasting.as_secs_f64()))
    }
}
