//! The outside of the service: an upstream publisher, and a look into queues and tables.

use std::time::{Duration, Instant};

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Queue,
    message::BasicGetMessage,
    options::{
        BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions,
        QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};

use crate::{
    events::Event,
    wait::{SOON, until},
};

/// How long the broker waits for a queue's leader before it says that the queue is empty, and how often such an answer
/// is asked for again.
const LEADER_TIMEOUT: Duration = Duration::from_millis(250);
const MAX_TRIES: usize = 3;

/// A connection to the broker that no service uses.
pub struct Outsider {
    connection: Connection,
    channel: Channel,
    exchange: String,
}

impl Outsider {
    /// Connects.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub async fn connect(amqp_url: &str, exchange: &str) -> Self {
        Self::try_connect(amqp_url, exchange).await.expect("the broker answers")
    }

    /// Connects, if the broker answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn try_connect(amqp_url: &str, exchange: &str) -> Result<Self, lapin::Error> {
        let connection = connect_any(amqp_url).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { connection, channel, exchange: exchange.to_owned() })
    }

    /// Publishes events and waits for the confirms.
    ///
    /// # Panics
    /// When the broker does not confirm them.
    pub async fn publish(&self, events: &[Event]) {
        for events in events.chunks(200) {
            let mut confirms = Vec::new();
            for event in events {
                let sent = self.send(&self.exchange, event.event_type.as_str(), &event.to_message()).await;
                confirms.push(sent.expect("the channel is open"));
            }
            for confirm in confirms {
                assert_eq!(confirm.await.expect("a confirm comes"), Confirmation::Ack(None));
            }
        }
    }

    /// Publishes any message with any routing key to the event exchange.
    ///
    /// # Panics
    /// When the broker does not confirm it.
    pub async fn publish_raw(&self, routing_key: &str, body: &[u8]) {
        self.publish_to(&self.exchange, routing_key, body).await;
    }

    /// Publishes any message with any routing key to the event exchange, if a queue accepts it.
    ///
    /// # Errors
    /// The broker's answer, when it is no plain confirm.
    ///
    /// # Panics
    /// When the channel fails.
    pub async fn try_publish_raw(&self, routing_key: &str, body: &[u8]) -> Result<(), Confirmation> {
        let confirm = self.send(&self.exchange, routing_key, body).await.expect("the channel is open");
        match confirm.await.expect("a confirm comes") {
            Confirmation::Ack(None) => Ok(()),
            other => Err(other),
        }
    }

    /// Publishes any message with these headers to the event exchange.
    ///
    /// # Panics
    /// When the broker does not confirm it.
    pub async fn publish_with(&self, routing_key: &str, body: &[u8], headers: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        self.publish_described(routing_key, body, persistent().with_headers(table)).await;
    }

    /// Publishes any message with these properties to the event exchange.
    ///
    /// # Panics
    /// When the broker does not confirm it.
    pub async fn publish_described(&self, routing_key: &str, body: &[u8], properties: BasicProperties) {
        let confirm = self.send_with(&self.exchange, routing_key, body, properties).await.expect("the channel is open");
        assert_eq!(confirm.await.expect("a confirm comes"), Confirmation::Ack(None));
    }

    /// Publishes any message to any exchange.
    ///
    /// # Panics
    /// When the broker does not confirm it.
    pub async fn publish_to(&self, exchange: &str, routing_key: &str, body: &[u8]) {
        let confirm = self.send(exchange, routing_key, body).await.expect("the channel is open");
        assert_eq!(confirm.await.expect("a confirm comes"), Confirmation::Ack(None));
    }

    async fn send(
        &self,
        exchange: &str,
        routing_key: &str,
        body: &[u8],
    ) -> Result<lapin::PublisherConfirm, lapin::Error> {
        self.send_with(exchange, routing_key, body, persistent()).await
    }

    async fn send_with(
        &self,
        exchange: &str,
        routing_key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<lapin::PublisherConfirm, lapin::Error> {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        self.channel.basic_publish(exchange.into(), routing_key.into(), options, body, properties).await
    }

    /// The number of ready messages in a queue.
    ///
    /// # Panics
    /// When there is no such queue.
    pub async fn ready(&self, queue: &str) -> u32 {
        self.look(queue).await.message_count()
    }

    /// The number of ready messages in a queue, if there is such a queue. If there is none, the channel is closed.
    pub(crate) async fn try_ready(&self, queue: &str) -> Option<u32> {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        Some(self.channel.queue_declare(queue.into(), passive, FieldTable::default()).await.ok()?.message_count())
    }

    /// A leader that is silent for a quarter of a second looks like an empty queue without consumers: such an answer is
    /// asked for again a few times.
    async fn look(&self, queue: &str) -> Queue {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let mut tries = 0..MAX_TRIES;
        loop {
            let asked = Instant::now();
            let seen = self.channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
            let seen = seen.expect("it exists");
            let is_silent = seen.message_count() + seen.consumer_count() == 0 && asked.elapsed() >= LEADER_TIMEOUT;
            if !is_silent || tries.next().is_none() {
                return seen;
            }
        }
    }

    /// Waits until this number of messages is ready in a queue.
    ///
    /// # Panics
    /// When there is no such queue, or the deadline passes.
    pub async fn wait_ready(&self, queue: &str, messages: u32, deadline: Duration) {
        let what = format!("{queue} holds {messages} messages");
        until(&what, deadline, || async { self.ready(queue).await == messages }).await;
    }

    /// The number of consumers of a queue.
    ///
    /// # Panics
    /// When there is no such queue.
    pub async fn consumers(&self, queue: &str) -> u32 {
        self.look(queue).await.consumer_count()
    }

    /// Declares a queue of this connection's own, and binds it to an exchange.
    ///
    /// # Panics
    /// When there is no such exchange.
    pub async fn bind_own_queue(&self, queue: &str, exchange: &str, key: &str) {
        let own = QueueDeclareOptions { exclusive: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), own, FieldTable::default()).await.expect("the broker answers");
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        self.channel.queue_bind(queue.into(), exchange.into(), key.into(), options, table).await.expect("it exists");
    }

    /// Removes the binding of a queue to the event exchange under a key.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn unbind(&self, queue: &str, key: &str) {
        let (exchange, table) = (self.exchange.as_str().into(), FieldTable::default());
        self.channel.queue_unbind(queue.into(), exchange, key.into(), table).await.expect("the broker answers");
    }

    /// Declares a queue of this connection's own whose messages expire immediately, into an exchange under a key.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn declare_expiring_queue(&self, queue: &str, exchange: &str, key: &str) {
        let own = QueueDeclareOptions { exclusive: true, ..Default::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(1));
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(exchange.into()));
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(key.into()));
        self.channel.queue_declare(queue.into(), own, arguments).await.expect("the broker answers");
    }

    /// Takes a message from a queue, if there is one, and acknowledges it.
    ///
    /// # Panics
    /// When there is no such queue.
    pub async fn take(&self, queue: &str) -> Option<BasicGetMessage> {
        let message = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("it exists")?;
        message.ack(BasicAckOptions::default()).await.expect("the channel is open");
        Some(message)
    }

    /// Removes all messages from a queue, and acknowledges them.
    ///
    /// # Panics
    /// When there is no such queue.
    pub async fn take_all(&self, queue: &str) -> Vec<BasicGetMessage> {
        let mut messages = Vec::new();
        while let Some(message) = self.take(queue).await {
            messages.push(message);
        }
        messages
    }

    /// The number of deliveries of each ready message of a queue. This look is one delivery more.
    ///
    /// # Panics
    /// When there is no such queue.
    pub async fn delivery_counts(&self, queue: &str) -> Vec<i64> {
        let channel = self.connection.create_channel().await.expect("the connection is open");
        let mut counts = Vec::new();
        while let Some(message) = channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("it exists")
        {
            let headers = message.properties.headers().clone().unwrap_or_default();
            let count = headers.inner().get("x-delivery-count");
            counts.push(count.map_or(0, |count| count.as_long_long_int().expect("the broker counts in 64 bits")));
        }
        channel.close(200, "seen".into()).await.expect("the connection is open");
        counts
    }

    /// Has the first message of a queue delivered this many times without an acknowledgement.
    ///
    /// # Panics
    /// When there is no such message.
    pub async fn deliver_in_vain(&self, queue: &str, times: usize) {
        for _ in 0..times {
            let channel = self.connection.create_channel().await.expect("the connection is open");
            let begun = Instant::now();
            while channel.basic_get(queue.into(), BasicGetOptions::default()).await.expect("it exists").is_none() {
                assert!(begun.elapsed() < SOON, "{queue} has no message");
            }
            channel.close(200, "seen".into()).await.expect("the connection is open");
        }
    }

    /// Deletes a queue. Returns true if it is gone.
    pub async fn delete_queue(&self, queue: &str) -> bool {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.is_ok()
    }

    /// Deletes an exchange.
    pub async fn delete_exchange(&self, exchange: &str) {
        let _ = self.channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await;
    }

    /// Disconnects.
    pub async fn close(self) {
        let _ = tokio::time::timeout(Duration::from_secs(5), self.connection.close(200, "bye".into())).await;
    }
}

/// A header of a message.
///
/// # Panics
/// When it is missing, or is not text.
#[must_use]
pub fn text_header(message: &BasicGetMessage, name: &str) -> String {
    let headers = message.properties.headers().as_ref().expect("it has headers");
    match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

/// How long a node has to answer, if there are others.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to the first node of a list that answers.
///
/// # Errors
/// When none does.
pub async fn connect_any(amqp_urls: &str) -> Result<Connection, lapin::Error> {
    let (most, last) = amqp_urls.rsplit_once(',').unwrap_or(("", amqp_urls));
    for url in most.split(',').filter(|url| !url.is_empty()) {
        let connecting = Connection::connect(url, ConnectionProperties::default());
        if let Ok(Ok(connection)) = tokio::time::timeout(NODE_TIMEOUT, connecting).await {
            return Ok(connection);
        }
    }
    Connection::connect(last, ConnectionProperties::default()).await
}

fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

/// Runs one statement and returns its rows.
///
/// # Panics
/// When the database refuses it.
pub async fn sql(database_url: &str, statement: &str) -> Vec<tokio_postgres::Row> {
    let (client, connection) =
        tokio_postgres::connect(database_url, tokio_postgres::NoTls).await.expect("the database answers");
    let driver = tokio::spawn(connection);
    let rows = client.query(statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    drop(client);
    let _ = driver.await;
    rows
}
