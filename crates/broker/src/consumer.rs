//! Consuming in batches of whatever has arrived.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::try_join_all};
use lapin::{
    Channel, Connection, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    acks::Acks,
    error::BrokerError,
    link::{Backoff, Broker, FAREWELL, close, in_time},
    message::Received,
    prefetch::{Prefetch, Sizes},
};

/// Whether a consumer is attached to its queue: a handle for readiness, which may exist before the consumer does.
#[derive(Clone, Debug, Default)]
pub struct Attachment(Arc<AtomicBool>);

impl Attachment {
    /// Whether messages can arrive.
    ///
    /// # Errors
    /// Says that they cannot.
    pub fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err("not attached".to_owned()) }
    }

    fn set(&self, attached: bool) {
        self.0.store(attached, Ordering::Relaxed);
    }
}

/// How large a batch may become. One message is always taken, whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimit {
    /// Messages.
    pub messages: usize,
    /// Bytes of bodies: no further message is taken once they are reached.
    pub bytes: usize,
}

/// A consumer of one queue that attaches itself again whenever it is thrown off.
pub struct Subscription {
    messages: mpsc::Receiver<Received>,
    stop: CancellationToken,
    close: CancellationToken,
    supervisor: tokio::task::JoinHandle<()>,
}

/// Ends a subscription; made by [`Subscription::into_closing`].
pub struct Closing {
    close: CancellationToken,
    supervisor: tokio::task::JoinHandle<()>,
}

impl Subscription {
    pub(crate) fn start(broker: Broker, queue: String, prefetch: Prefetch, attachment: Attachment) -> Self {
        let (sender, messages) = mpsc::channel(usize::from(prefetch.most()));
        let (stop, close) = (CancellationToken::new(), CancellationToken::new());
        let worker = Worker { broker, queue, prefetch, sender, attachment, stop: stop.clone(), close: close.clone() };
        let supervisor = tokio::spawn(worker.supervise());
        Self { messages, stop, close, supervisor }
    }

    /// Waits for a message, then takes what else has arrived, up to the limit. `None` after [`Subscription::stop`].
    pub async fn next_batch(&mut self, limit: BatchLimit) -> Option<Vec<Received>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.is_empty() {
            let mut next = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                message = self.messages.recv() => Some(message?),
            };
            while let Some(message) = next {
                // What a lost connection had handed out comes again: leave it to the next hand-out.
                if message.acker.is_usable() {
                    bytes += message.body.len();
                    batch.push(message);
                }
                let is_full = batch.len() >= limit.messages || bytes >= limit.bytes;
                next = if is_full { None } else { self.messages.try_recv().ok() };
            }
        }
        Some(batch)
    }

    /// Cancels the consumer: no further messages are handed out. What was handed out can still be acknowledged.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops, and gives a handle that closes the connection once the last acknowledgement is sent.
    #[must_use]
    pub fn into_closing(self) -> Closing {
        self.stop.cancel();
        Closing { close: self.close, supervisor: self.supervisor }
    }
}

impl Closing {
    /// Closes the connection; what is not acknowledged goes back to its queue.
    pub async fn close(self) {
        self.close.cancel();
        if self.supervisor.await.is_err() {
            tracing::error!("the supervisor of a consumer panicked");
        }
    }
}

struct Worker {
    broker: Broker,
    queue: String,
    prefetch: Prefetch,
    sender: mpsc::Sender<Received>,
    attachment: Attachment,
    stop: CancellationToken,
    close: CancellationToken,
}

impl Worker {
    async fn supervise(self) {
        let mut backoff = Backoff::new();
        while !self.stop.is_cancelled() {
            let attached = tokio::select! {
                () = self.stop.cancelled() => return,
                attached = in_time(self.attach()) => attached,
            };
            match attached {
                Ok((connection, channel, consumer)) => {
                    backoff = Backoff::new();
                    tracing::info!(queue = %self.queue, "consuming");
                    self.attachment.set(true);
                    let acks = Acks::new(channel.clone(), &self.broker.shared.stats);
                    self.forward(&channel, consumer, &acks).await;
                    self.attachment.set(false);
                    if self.stop.is_cancelled() {
                        self.close.cancelled().await;
                        close(&connection).await;
                        acks.end();
                        return;
                    }
                    acks.end();
                    self.broker.shared.stats.reconnects.inc();
                    tracing::warn!(queue = %self.queue, "the consumer was thrown off; attaching again");
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "broker.url (WEBHOOKS__BROKER__URL): the broker cannot be reached; trying again"
                ),
            }
            backoff.wait(&self.stop).await;
        }
    }

    async fn attach(&self) -> Result<(Connection, Channel, Consumer), BrokerError> {
        let (connection, channel) = self.broker.connect("consume").await?;
        let consumer = self.consume(&channel, TAG, self.prefetch.few()).await?;
        Ok((connection, channel, consumer))
    }

    /// A consumer with so many messages of its own.
    async fn consume(&self, channel: &Channel, tag: &str, messages: u16) -> Result<Consumer, BrokerError> {
        channel.basic_qos(messages, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        Ok(channel.basic_consume(self.queue.as_str().into(), tag.into(), options, arguments).await?)
    }

    /// Hands messages on until the consumer ends, by a failure or by the stop. While bodies are small, a second one takes
    /// further messages; each has a tag of its own, as one that was cancelled keeps its tag until all is acknowledged. When
    /// nothing came for a while and all that came is acknowledged, nothing is known of what comes next, and the second one
    /// ends.
    async fn forward(&self, channel: &Channel, mut consumer: Consumer, acks: &Arc<Acks>) {
        let mut sizes = Sizes::new(self.prefetch);
        let (mut second, mut last) = (Second::default(), 0);
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    cancel_all(channel, second.tag.as_deref().into_iter().chain([TAG])).await;
                    return;
                }
                next = consumer.next() => match next {
                    Some(next) => Some(next),
                    None => return,
                },
                next = async { second.consumer.as_mut()?.next().await }, if second.consumer.is_some() => match next {
                    Some(next) => Some(next),
                    None if second.tag.is_some() => return,
                    None => {
                        second.consumer = None;
                        continue;
                    }
                },
                () = tokio::time::sleep(IDLE), if sizes.any() => None,
            };
            let wanted = match next {
                Some(Ok(delivery)) => {
                    let wanted = sizes.count(delivery.data.len());
                    last = delivery.delivery_tag;
                    if self.sender.send(Received::new(delivery, acks)).await.is_err() {
                        return;
                    }
                    wanted
                }
                Some(Err(error)) => return tracing::warn!(%error, "consuming failed"),
                None if acks.are_done(last) => {
                    sizes = Sizes::new(self.prefetch);
                    0
                }
                None => continue,
            };
            // The last of those of one that was cancelled have to come before there is another.
            if wanted == second.messages || (second.tag.is_none() && second.consumer.is_some()) {
                continue;
            }
            let changed = tokio::select! {
                biased;
                () = self.stop.cancelled() => continue,
                changed = in_time(self.change(channel, &mut second, wanted)) => changed,
            };
            if let Err(error) = changed {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the number of messages taken at a time could not be changed"
                );
                return;
            }
        }
    }

    /// Cancels the second consumer, or opens one for so many messages.
    async fn change(&self, channel: &Channel, second: &mut Second, messages: u16) -> Result<(), BrokerError> {
        if let Some(tag) = second.tag.take() {
            second.messages = 0;
            return Ok(cancel(channel, &tag).await?);
        }
        (second.opened, second.messages) = (second.opened + 1, messages);
        let tag = second.tag.insert(format!("{TAG}-{}", second.opened));
        second.consumer = Some(self.consume(channel, tag, messages).await?);
        Ok(())
    }
}

/// The second consumer.
#[derive(Default)]
struct Second {
    /// Until it is cancelled.
    tag: Option<String>,
    /// How many it may have; none once it is cancelled.
    messages: u16,
    /// Until the last of its messages has come.
    consumer: Option<Consumer>,
    /// How many there were.
    opened: u64,
}

/// Ends consumers, or gives up soon.
async fn cancel_all<'t>(channel: &Channel, tags: impl Iterator<Item = &'t str>) {
    let cancelled = try_join_all(tags.map(|tag| cancel(channel, tag)));
    if !matches!(tokio::time::timeout(FAREWELL, cancelled).await, Ok(Ok(_))) {
        tracing::debug!("the consumer could not be cancelled");
    }
}

/// Ends a consumer; what it was handed out can still be acknowledged.
async fn cancel(channel: &Channel, tag: &str) -> lapin::Result<()> {
    channel.basic_cancel(tag.into(), BasicCancelOptions::default()).await
}

const TAG: &str = "webhooks";
/// Nothing came for so long: what comes next may be of any size.
const IDLE: Duration = Duration::from_secs(5);
