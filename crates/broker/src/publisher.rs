//! Publishing with confirms.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lapin::{
    Channel, Confirmation, Connection, ConnectionStatus, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    begun::{Begun, begun},
    error::{BrokerError, PublishError},
    link::{Backoff, Broker, close, in_time},
    message::Outgoing,
};

/// How many messages of one call wait for their confirms at a time. Hundreds of messages leave in several such, so that
/// other tenants' get between them.
const WINDOW: usize = 32;
/// How often the supervisor looks whether the connection still stands.
const LOOK: Duration = Duration::from_millis(200);

/// Publishes messages and waits until the broker has confirmed them. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    broker: Broker,
    standing: watch::Receiver<Option<Standing>>,
}

/// A connection that stands, as far as is known.
#[derive(Clone)]
struct Standing {
    channel: Channel,
    /// Held while messages are numbered and queued. lapin does these one after the other: with two callers at once, one
    /// would take the other's confirm for its own.
    order: Arc<Mutex<()>>,
    connection: ConnectionStatus,
    /// Cancelled when a publish failed on it. One per connection: a late failure never fells the next one.
    suspect: CancellationToken,
}

impl Publisher {
    pub(crate) fn start(broker: Broker, stop: CancellationToken) -> Self {
        let (sender, standing) = watch::channel(None);
        tokio::spawn(supervise(broker.clone(), sender, stop));
        Self { broker, standing }
    }

    /// Publishes messages; returns once the broker has confirmed all of them.
    ///
    /// # Errors
    /// When one of them is not known to be with the broker. Which of the others are is unknown then too.
    pub async fn publish(&self, messages: &[Outgoing]) -> Result<(), PublishError> {
        for window in messages.chunks(WINDOW) {
            if let Err(error) = self.publish_window(window).await {
                self.broker.shared.stats.publish_failures.inc();
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
        match self.standing.borrow().as_ref() {
            Some(standing) if standing.connection.blocked() => Err("blocked by the broker".to_owned()),
            Some(standing) if standing.channel.status().connected() => Ok(()),
            _ => Err("not connected".to_owned()),
        }
    }

    async fn publish_window(&self, window: &[Outgoing]) -> Result<(), PublishError> {
        let patience = self.broker.shared.confirm_timeout;
        let deadline = Instant::now() + patience;
        let mut watched = self.standing.clone();
        let standing = match timeout_at(deadline, watched.wait_for(Option::is_some)).await {
            Ok(Ok(standing)) => standing.clone(),
            _ => None,
        };
        let Standing { channel, order, connection, suspect } = standing.ok_or(PublishError::NotConnected)?;
        if connection.blocked() {
            return Err(PublishError::Blocked);
        }
        let exchange = self.broker.names().exchange();
        let queued = {
            let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
            queue(&channel, &exchange, window)
        };
        let published = timeout_at(deadline, confirmed(queued)).await;
        let published = published.unwrap_or(Err(PublishError::Timeout(patience)));
        if published.is_err() && !connection.blocked() {
            suspect.cancel();
        }
        published
    }
}

/// Queues messages, to be sent together: sent one by one, each would cost a change of threads there and back.
fn queue<'a>(
    channel: &'a Channel,
    exchange: &str,
    messages: &'a [Outgoing],
) -> Vec<Begun<impl Future<Output = lapin::Result<PublisherConfirm>> + use<'a>>> {
    let queue = |message: &'a Outgoing| {
        // Nothing is ever returned, as the exchange has an alternate one; if it is, the channel is not what it seems.
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let (exchange, queue) = (exchange.into(), message.queue.as_str().into());
        begun(channel.basic_publish(exchange, queue, options, &message.body, message.properties()))
    };
    messages.iter().map(queue).collect()
}

/// Waits until messages are sent and confirmed. From the last one on: the others are done by then, and whoever waits is
/// woken once.
async fn confirmed<F>(queued: Vec<Begun<F>>) -> Result<(), PublishError>
where
    F: Future<Output = lapin::Result<PublisherConfirm>>,
{
    let mut confirms = Vec::with_capacity(queued.len());
    for sent in queued.into_iter().rev() {
        confirms.push(sent.done().await?);
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

async fn supervise(broker: Broker, sender: watch::Sender<Option<Standing>>, stop: CancellationToken) {
    let mut backoff = Backoff::new();
    while !stop.is_cancelled() {
        match in_time(open(&broker)).await {
            Ok((connection, channel)) => {
                backoff = Backoff::new();
                let (status, suspect) = (connection.status().clone(), CancellationToken::new());
                let standing = Standing { channel, order: Arc::default(), connection: status, suspect };
                sender.send_replace(Some(standing.clone()));
                stand(&standing, &stop).await;
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

/// Returns when the connection no longer stands, when a publish failed on it, or at the stop. A blocked connection is
/// kept whatever failed: another one would be blocked as well, and this one could not even be closed.
async fn stand(standing: &Standing, stop: &CancellationToken) {
    let Standing { channel, connection, suspect, .. } = standing;
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => {}
            () = suspect.cancelled(), if !connection.blocked() => return,
        }
        if !connection.connected() || !channel.status().connected() {
            return;
        }
    }
}
