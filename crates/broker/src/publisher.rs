//! Publishing with confirms.

use std::{sync::Arc, time::Duration};

use lapin::{
    Channel, Confirmation, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{BrokerError, PublishError},
    link::{Backoff, Broker, close},
    message::Outgoing,
};

/// How many messages of one call wait for their confirms at a time.
const WINDOW: usize = 256;
/// How often the supervisor looks whether the connection still stands.
const LOOK: Duration = Duration::from_millis(200);

/// Publishes messages and waits until the broker has confirmed them. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    broker: Broker,
    channel: watch::Receiver<Option<Channel>>,
    suspect: Arc<Notify>,
}

impl Publisher {
    pub(crate) fn start(broker: Broker, stop: CancellationToken) -> Self {
        let (sender, channel) = watch::channel(None);
        let suspect = Arc::new(Notify::new());
        tokio::spawn(supervise(broker.clone(), sender, Arc::clone(&suspect), stop));
        Self { broker, channel, suspect }
    }

    /// Publishes messages; returns once the broker has confirmed all of them.
    ///
    /// # Errors
    /// When one of them is not known to be with the broker. Which of the others are is unknown then too.
    pub async fn publish(&self, messages: &[Outgoing]) -> Result<(), PublishError> {
        for window in messages.chunks(WINDOW) {
            let deadline = self.broker.shared.confirm_timeout;
            let published = tokio::time::timeout(deadline, self.publish_window(window)).await;
            if let Err(error) = published.unwrap_or(Err(PublishError::Timeout(deadline))) {
                self.broker.shared.stats.publish_failures.inc();
                self.suspect.notify_one();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether there is a connection, and the broker takes messages.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let standing = self.channel.borrow().as_ref().is_some_and(|channel| channel.status().connected());
        if standing { Ok(()) } else { Err("not connected".to_owned()) }
    }

    async fn publish_window(&self, window: &[Outgoing]) -> Result<(), PublishError> {
        let mut watched = self.channel.clone();
        let current = watched.wait_for(Option::is_some).await.map_err(|_| PublishError::NotConnected)?.clone();
        let channel = current.ok_or(PublishError::NotConnected)?;
        let exchange = self.broker.names().exchange();
        let mut confirms = Vec::with_capacity(window.len());
        for message in window {
            // Nothing is ever returned, as the exchange has an alternate one; if it is, the channel is not what it seems.
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let (exchange, queue) = (exchange.as_str().into(), message.queue.as_str().into());
            confirms.push(channel.basic_publish(exchange, queue, options, &message.body, message.properties()).await?);
        }
        for confirm in confirms {
            match confirm.await? {
                Confirmation::Ack(None) => {}
                Confirmation::Ack(Some(returned)) => {
                    return Err(PublishError::Unroutable(returned.routing_key.to_string()));
                }
                Confirmation::Nack(_) | Confirmation::NotRequested => return Err(PublishError::Refused),
            }
        }
        Ok(())
    }
}

async fn supervise(
    broker: Broker,
    sender: watch::Sender<Option<Channel>>,
    suspect: Arc<Notify>,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        match open(&broker).await {
            Ok((connection, channel)) => {
                backoff = Backoff::new();
                sender.send_replace(Some(channel.clone()));
                stand(&connection, &channel, &suspect, &stop).await;
                sender.send_replace(None);
                if stop.is_cancelled() {
                    close(&connection).await;
                } else {
                    broker.shared.stats.reconnects.inc();
                    tracing::warn!("the publishing connection to the broker failed; connecting again");
                }
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "broker.url (WEBHOOKS__BROKER__URL): the broker cannot be reached; trying again"
            ),
        }
        backoff.wait(&stop).await;
    }
}

async fn open(broker: &Broker) -> Result<(Connection, Channel), BrokerError> {
    let (connection, channel) = broker.connect("publish").await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

/// Returns when the connection no longer stands, when a publish failed on it, or at the stop.
async fn stand(connection: &Connection, channel: &Channel, suspect: &Notify, stop: &CancellationToken) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = suspect.notified() => return,
            _ = look.tick() => {
                if !connection.status().connected() || !channel.status().connected() {
                    return;
                }
            }
        }
    }
}
