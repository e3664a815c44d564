//! An upstream service that publishes until it has the confirms.

use std::time::Duration;

use domain::EventType;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::{events::Event, outsider::connect_any, system::System};

/// How long the broker may take to confirm a chunk.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);
const CHUNK_EVENTS: usize = 100;

/// Publishes events. A chunk that is not confirmed is published again over a new connection, for as long as it takes.
pub struct Upstream {
    /// The URL of the broker.
    pub amqp_url: String,
    /// The exchange that it publishes to.
    pub exchange: String,
}

/// Its connection, once there is one.
pub(crate) type Link = Option<(Connection, Channel)>;

impl Upstream {
    /// The upstream service of a test's system.
    #[must_use]
    pub fn of(system: &System) -> Self {
        Self { amqp_url: system.amqp_url.clone(), exchange: system.names.events_exchange.clone() }
    }

    /// Publishes events, in chunks.
    pub async fn publish(&self, events: &[Event]) {
        let mut link = None;
        for chunk in events.chunks(CHUNK_EVENTS) {
            self.persist(&mut link, chunk).await;
        }
    }

    /// Publishes an event of each of these tenants and types ten times a second, until the handle is dropped. While the
    /// broker is away they wait, as in an outbox.
    pub fn publish_steadily(self, what: Vec<(Uuid, EventType)>) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            let (outbox, mut due) = mpsc::unbounded_channel();
            let happen = async {
                let mut pace = interval(Duration::from_millis(100));
                loop {
                    pace.tick().await;
                    for (tenant, event_type) in &what {
                        let _ = outbox.send(Event::now(*event_type, *tenant));
                    }
                }
            };
            let publish = async {
                let (mut link, mut chunk) = (None, Vec::new());
                while due.recv_many(&mut chunk, CHUNK_EVENTS).await > 0 {
                    self.persist(&mut link, &chunk).await;
                    chunk.clear();
                }
            };
            tokio::join!(happen, publish);
        }))
    }

    /// Whether the broker confirms an event in time.
    pub async fn confirms(&self, event: &Event) -> bool {
        matches!(timeout(CONFIRM_TIMEOUT, self.chunk(&mut None, std::slice::from_ref(event))).await, Ok(Ok(true)))
    }

    /// Publishes a chunk until all of it is confirmed. Returns how often it was published.
    pub(crate) async fn persist(&self, link: &mut Link, chunk: &[Event]) -> u32 {
        let mut times = 1;
        while !matches!(timeout(CONFIRM_TIMEOUT, self.chunk(link, chunk)).await, Ok(Ok(true))) {
            (*link, times) = (None, times + 1);
            // This waits for nothing: it only avoids hammering a broker that boots.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        times
    }

    /// Publishes a chunk once. Returns whether none of it was refused: a queue without a leader refuses events.
    async fn chunk(&self, link: &mut Link, events: &[Event]) -> Result<bool, lapin::Error> {
        if link.is_none() {
            let connection = connect_any(&self.amqp_url).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            *link = Some((connection, channel));
        }
        let Some((_, channel)) = link else { return Ok(false) };
        let mut confirms = Vec::new();
        for event in events {
            let (exchange, key) = (self.exchange.as_str().into(), event.event_type.as_str().into());
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = BasicProperties::default().with_delivery_mode(2);
            confirms.push(channel.basic_publish(exchange, key, options, &event.to_message(), properties).await?);
        }
        for confirm in confirms {
            let confirm = confirm.await?;
            if matches!(confirm, Confirmation::Nack(_)) {
                return Ok(false);
            }
            assert_eq!(confirm, Confirmation::Ack(None), "a queue takes every event");
        }
        Ok(true)
    }
}
