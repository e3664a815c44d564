//! An upstream service that publishes until it has the confirms.

use std::time::Duration;

use end_to_end::events::Event;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::time::timeout;

/// How long the broker may take to confirm a chunk.
const PATIENCE: Duration = Duration::from_secs(3);
const CHUNK: usize = 100;

/// Publishes events. A chunk that is not confirmed is published again over a new connection, for as long as it takes.
pub(crate) struct Upstream {
    pub(crate) amqp_url: String,
    pub(crate) exchange: String,
}

impl Upstream {
    pub(crate) async fn publish(&self, events: &[Event]) {
        let mut link = None;
        for chunk in events.chunks(CHUNK) {
            while !matches!(timeout(PATIENCE, self.chunk(&mut link, chunk)).await, Ok(Ok(()))) {
                link = None;
                // This waits for nothing: it only avoids hammering a broker that boots.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Whether the broker confirms an event in time.
    pub(crate) async fn confirms(&self, event: &Event) -> bool {
        matches!(timeout(PATIENCE, self.chunk(&mut None, std::slice::from_ref(event))).await, Ok(Ok(())))
    }

    async fn chunk(&self, link: &mut Option<(Connection, Channel)>, events: &[Event]) -> Result<(), lapin::Error> {
        if link.is_none() {
            let connection = Connection::connect(&self.amqp_url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            *link = Some((connection, channel));
        }
        let Some((_, channel)) = link else { return Ok(()) };
        let mut confirms = Vec::new();
        for event in events {
            let (exchange, key) = (self.exchange.as_str().into(), event.event_type.as_str().into());
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = BasicProperties::default().with_delivery_mode(2);
            confirms.push(channel.basic_publish(exchange, key, options, &event.to_message(), properties).await?);
        }
        for confirm in confirms {
            assert_eq!(confirm.await?, Confirmation::Ack(None));
        }
        Ok(())
    }
}
