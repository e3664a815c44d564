//! A careful upstream service: it publishes an unconfirmed event again with the same id, so there are duplicates.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use super::{evidence::Published, fixtures::now, plan::PlannedEvent};
use crate::{events::Event, outsider::connect_any};

/// How long the broker may take to confirm what is due, including a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most events that are published before the first confirm is awaited.
const MOST: usize = 50;

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
    /// Publishes each event at its time, or once the earlier ones are confirmed: then up to `MOST` events that are due.
    /// Adds confirmed events to `list`.
    pub(super) async fn publish(self, began: Instant, events: Vec<PlannedEvent>, list: Arc<Mutex<Vec<Published>>>) {
        let mut link = None;
        let mut events = events.into_iter().peekable();
        while let Some(first) = events.next() {
            sleep_until(began + first.at).await;
            let mut due = VecDeque::from([self.due(first)]);
            while due.len() < MOST
                && let Some(next) = events.next_if(|next| began + next.at <= Instant::now())
            {
                due.push_back(self.due(next));
            }
            while !due.is_empty() {
                let sent = timeout(PATIENCE, self.send(&mut link, &mut due, &list)).await;
                if !sent.is_ok_and(|sent| sent.is_ok_and(|all| all)) {
                    link = None;
                    // Only spares a broker that is starting.
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn due(&self, planned: PlannedEvent) -> Published {
        let event = Event {
            id: planned.id,
            event_type: planned.event_type,
            tenant: self.tenants[planned.tenant],
            timestamp: now().format(&Rfc3339).expect("now can be written"),
            data: planned.data,
        };
        Published { event, times: 0 }
    }

    /// Publishes all that are due, and moves the confirmed ones to `list`. Returns whether none was refused: a queue
    /// without a leader refuses events.
    async fn send(
        &self,
        link: &mut Option<Link>,
        due: &mut VecDeque<Published>,
        list: &Mutex<Vec<Published>>,
    ) -> Result<bool, lapin::Error> {
        if link.is_none() {
            let connection = connect_any(&self.amqp_url).await?;
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            *link = Some(Link { _connection: connection, channel });
        }
        let Some(Link { channel, .. }) = link else { return Ok(false) };
        let mut confirms = Vec::with_capacity(due.len());
        for Published { event, times } in due.iter_mut() {
            let (exchange, key) = (self.exchange.as_str().into(), event.event_type.as_str().into());
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = BasicProperties::default().with_delivery_mode(2);
            *times += 1;
            confirms.push(channel.basic_publish(exchange, key, options, &event.to_message(), properties).await?);
        }
        for confirm in confirms {
            let confirm = confirm.await?;
            if matches!(confirm, Confirmation::Nack(_)) {
                return Ok(false);
            }
            assert_eq!(confirm, Confirmation::Ack(None), "a queue takes every event");
            list.lock().unwrap_or_else(PoisonError::into_inner).extend(due.pop_front());
        }
        Ok(true)
    }
}
