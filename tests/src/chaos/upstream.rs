//! A careful upstream service: what is not confirmed is published again, with the same id.

use std::time::Duration;

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::{cast::now, evidence::Published, plan::PlannedEvent};
use crate::events::Event;

/// How long the broker has for a confirm, or for a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// A publisher with a connection of its own.
pub(super) struct Upstream {
    pub(super) amqp_url: String,
    pub(super) exchange: String,
    pub(super) tenants: Vec<Uuid>,
}

struct Link {
    _connection: Connection,
    channel: Channel,
}

impl Upstream {
    /// Publishes each event at its time, or as soon as the ones before it are confirmed.
    pub(super) async fn publish(self, began: Instant, events: Vec<PlannedEvent>) -> Vec<Published> {
        let (mut link, mut published) = (None, Vec::with_capacity(events.len()));
        for planned in events {
            sleep_until(began + planned.at).await;
            let event = Event {
                id: planned.id,
                event_type: planned.event_type,
                tenant: self.tenants[planned.tenant],
                timestamp: now().format(&Rfc3339).expect("now can be written"),
                data: planned.data,
            };
            let mut times = 0;
            loop {
                times += 1;
                if timeout(PATIENCE, self.send(&mut link, &event)).await.is_ok_and(|sent| sent.is_ok()) {
                    break;
                }
                link = None;
                // Not to wait for anything: only so as not to hammer a broker that boots.
                sleep(Duration::from_millis(100)).await;
            }
            published.push(Published { event, times });
        }
        published
    }

    async fn send(&self, link: &mut Option<Link>, event: &Event) -> Result<(), lapin::Error> {
        if link.is_none() {
            let connection = Connection::connect(&self.amqp_url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            *link = Some(Link { _connection: connection, channel });
        }
        let Some(Link { channel, .. }) = link else { return Ok(()) };
        let (exchange, key) = (self.exchange.as_str().into(), event.event_type.as_str().into());
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let properties = BasicProperties::default().with_delivery_mode(2);
        let confirm = channel.basic_publish(exchange, key, options, &event.to_message(), properties).await?.await?;
        assert_eq!(confirm, Confirmation::Ack(None), "the broker takes every event");
        Ok(())
    }
}
