//! The bare pipe: consume a quorum queue, POST over HTTPS, acknowledge. No ledger, no signature, one hop. The service
//! is compared with it. It is measured just before and just after the service.

mod pipe;

use std::collections::HashMap;

use lapin::{
    Connection, ConnectionProperties,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::json;
use service_kit::Settings;

pub(crate) use pipe::run;

use crate::{child::Child, load::Load, round::ROUND_TIMEOUT, sink::Sink, usage::of_process};

/// The receivers of the pipe.
pub(crate) const GROUP: &str = "bare";

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
            "idle_seconds": ROUND_TIMEOUT.as_secs(),
        });
        let (child, ready) = Child::start("pipe", &[order.to_string()]);
        assert_eq!(ready, "ready");
        Self { child, queue, _connection: connection }
    }

    /// Ready bodies, straight into the queue of the pipe.
    pub(crate) fn load(&self, size: usize) -> Load {
        Load::of_bodies(&self.queue, size)
    }

    /// The CPU of the pipe's process.
    pub(crate) fn cpu(&self) -> f64 {
        of_process(self.child.pid())
    }
}
