//! Consumes a queue in batches of what has arrived.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use domain::error_chain;
use futures_util::{StreamExt, future::try_join_all};
use lapin::{
    Channel, Connection, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    acks::Acks,
    backoff::Backoff,
    broker::{Broker, CLOSE_TIMEOUT, close, in_time},
    early_ends::{EARLY_END_TIME, EarlyEnds},
    error::BrokerError,
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
    /// When they cannot.
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
    /// The number of messages.
    pub messages: usize,
    /// The bytes of bodies. No further message is taken once they are reached.
    pub bytes: usize,
    /// The time for which a batch waits for more messages, if at least two usually come within this time. A batch costs
    /// hardly more than a message.
    pub linger: Duration,
}

/// A consumer of one queue. It attaches itself again whenever the consumer or its connection ends.
pub struct Subscription {
    messages: mpsc::Receiver<Received>,
    gaps: Gaps,
    stop: CancellationToken,
    closing: Closing,
}

/// How fast messages come: the mean gap between them, in seconds.
struct Gaps {
    mean: f64,
    at: Instant,
}

impl Gaps {
    fn new(now: Instant) -> Self {
        Self { mean: f64::INFINITY, at: now }
    }

    /// Counts messages that came since the last call. The mean covers some tens of messages and never exceeds one
    /// second, so that high load shows soon.
    fn count(&mut self, messages: usize, now: Instant) {
        let messages = f64::from(u32::try_from(messages).unwrap_or(u32::MAX));
        let gap = (now - self.at).as_secs_f64() / messages;
        self.at = now;
        let weight = 1.0 - 0.95_f64.powf(messages);
        self.mean = self.mean.min(1.0) * (1.0 - weight) + gap.min(1.0) * weight;
    }

    /// Whether two messages come within a time, on average.
    fn are_short(&self, time: Duration) -> bool {
        self.mean * 2.0 <= time.as_secs_f64()
    }
}

/// Ends a subscription. [`Subscription::into_closing`] makes it.
pub struct Closing {
    close: CancellationToken,
    supervisor: tokio::task::JoinHandle<()>,
}

impl Broker {
    /// Starts to consume a queue with at most `prefetch` messages unacknowledged.
    pub fn subscribe(&self, queue: String, prefetch: Prefetch, attachment: Attachment) -> Subscription {
        let (sender, messages) = mpsc::channel(usize::from(prefetch.most));
        let (broker, stop, close) = (self.clone(), CancellationToken::new(), CancellationToken::new());
        let held = self.context.stats.consumer(self.names().unprefixed(&queue), prefetch.most);
        let worker =
            Worker { broker, queue, prefetch, sender, attachment, held, stop: stop.clone(), close: close.clone() };
        let supervisor = self.essential().spawn("consumer", worker.supervise());
        Subscription { messages, gaps: Gaps::new(Instant::now()), stop, closing: Closing { close, supervisor } }
    }
}

impl Subscription {
    /// Waits for a message, then takes what else has arrived, up to the limit. `None` if no message can come any more.
    pub async fn next_batch(&mut self, limit: BatchLimit) -> Option<Vec<Received>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.is_empty() {
            let mut next = Some(self.messages.recv().await?);
            let is_small = self.messages.len() + 1 < limit.messages;
            if batch.is_empty() && is_small && self.gaps.are_short(limit.linger) {
                sleep(limit.linger).await;
            }
            while let Some(message) = next {
                // Skips the messages of a lost connection: the broker delivers them again.
                if message.acker.is_usable() {
                    bytes += message.body.len();
                    batch.push(message);
                }
                let is_full = batch.len() >= limit.messages || bytes >= limit.bytes;
                next = if is_full { None } else { self.messages.try_recv().ok() };
            }
        }
        self.gaps.count(batch.len(), Instant::now());
        Some(batch)
    }

    /// Stops, requeues the messages that are in no batch yet, and returns a handle that closes the connection. Use the
    /// handle once the last acknowledgement is sent.
    pub fn into_closing(self) -> Closing {
        self.stop.cancel();
        self.closing
    }
}

impl Closing {
    /// Returns whether the connection is closed already, as all its messages were acknowledged.
    pub fn is_done(&self) -> bool {
        self.supervisor.is_finished()
    }

    /// Closes the connection. Messages that are not acknowledged go back to their queue.
    pub async fn close(self) {
        self.close.cancel();
        let _ = self.supervisor.await;
    }
}

struct Worker {
    broker: Broker,
    queue: String,
    prefetch: Prefetch,
    sender: mpsc::Sender<Received>,
    attachment: Attachment,
    /// How many messages this process holds.
    held: Gauge,
    stop: CancellationToken,
    close: CancellationToken,
}

/// An attempt that reached the queue.
struct Attached {
    connection: Connection,
    channel: Channel,
    /// The consumer, unless its connection has ended again already.
    consumer: Result<Consumer, BrokerError>,
    /// When the consumer was asked for.
    began: Instant,
}

impl Worker {
    async fn supervise(self) {
        let is_of_events = self.queue == self.broker.names().events();
        let (mut backoff, mut early_ends) = (Backoff::default(), EarlyEnds::new(is_of_events));
        let mut hurries = false;
        self.attachment.set(false);
        while !self.stop.is_cancelled() {
            let is_suspect = early_ends.suspect_head();
            let prefetch = if is_suspect { self.prefetch.one_first() } else { self.prefetch };
            let attaching = in_time(self.attach(early_ends.role(), prefetch));
            let Some(attached) = self.stop.run_until_cancelled(attaching).await else { return };
            match attached {
                Ok(Attached { connection, channel, consumer, began }) => {
                    let grows_at = if is_suspect { began + EARLY_END_TIME } else { began };
                    if !hurries && consumer.is_ok() {
                        tracing::info!(queue = %self.queue, "consuming");
                    }
                    self.attachment.set(consumer.is_ok());
                    let acks = Acks::new(channel.clone(), &self.broker.context.stats, self.held.clone());
                    let ended = match consumer {
                        Ok(consumer) => self.forward(&channel, (consumer, prefetch), &acks, grows_at).await,
                        Err(error) => Some(error),
                    };
                    if self.stop.is_cancelled() {
                        self.close.run_until_cancelled(all_done(&acks)).await;
                        close(&connection).await;
                        acks.end();
                        return;
                    }
                    self.attachment.set(false);
                    let is_early = early_ends.count(began.elapsed(), acks.are_done(1), Instant::now());
                    if !is_early {
                        backoff = Backoff::default();
                    }
                    acks.end();
                    self.broker.context.stats.reconnects.inc();
                    if !hurries || !is_early {
                        let error = ended.as_ref().map(|error| error_chain(error));
                        tracing::warn!(queue = %self.queue, error, "the consumer has ended; attaching again");
                    }
                    let is_refused = ended.is_some_and(|error| error.is_refusal());
                    hurries = early_ends.may_hurry(Instant::now()) && !is_refused;
                    if hurries {
                        continue;
                    }
                }
                Err(error) => {
                    hurries = false;
                    early_ends.failed();
                    error.warn();
                }
            }
            self.stop.run_until_cancelled(backoff.pause()).await;
        }
    }

    /// Connects and opens the consumer. Messages come immediately: one may end the connection before the answer is
    /// read.
    async fn attach(&self, role: &str, prefetch: Prefetch) -> Result<Attached, BrokerError> {
        let (connection, channel) = self.broker.connect(role).await?;
        let began = Instant::now();
        match self.consume(&channel, CONSUMER_TAG, prefetch.few).await {
            Err(error) if error.is_refusal() => Err(error),
            consumer => Ok(Attached { connection, channel, consumer, began }),
        }
    }

    /// Opens a consumer with a prefetch of its own.
    async fn consume(&self, channel: &Channel, tag: &str, messages: u16) -> Result<Consumer, BrokerError> {
        channel.basic_qos(messages, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        Ok(channel.basic_consume(self.queue.as_str().into(), tag.into(), options, arguments).await?)
    }

    /// Forwards messages until the consumer fails or is stopped, and returns the error. From `grows_at` on, while bodies are small, a second
    /// consumer receives further messages. Each second consumer has a new tag, as a cancelled one keeps its tag until all
    /// its messages are acknowledged. It ends when all messages are acknowledged and none has come for a while: the sizes of the
    /// next are then unknown.
    async fn forward(
        &self,
        channel: &Channel,
        (mut consumer, prefetch): (Consumer, Prefetch),
        acks: &Arc<Acks>,
        grows_at: Instant,
    ) -> Option<BrokerError> {
        let (mut sizes, mut second, mut last) = (Sizes::default(), Second::default(), 0);
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    self.leave(channel, consumer, second, acks).await;
                    return None;
                }
                next = consumer.next() => match next {
                    Some(next) => Some(next),
                    None => return None,
                },
                next = async { second.consumer.as_mut()?.next().await }, if second.consumer.is_some() => match next {
                    Some(next) => Some(next),
                    None if second.tag.is_some() => return None,
                    None => {
                        second.consumer = None;
                        continue;
                    }
                },
                () = tokio::time::sleep(IDLE_TIMEOUT), if sizes.any() => None,
            };
            let wanted = match next {
                Some(Ok(delivery)) => {
                    let wanted = sizes.count(delivery.data.len(), prefetch) && Instant::now() >= grows_at;
                    // Few large ones come after a suspicion, and not one: to an attachment with the usual prefetch.
                    if !wanted && prefetch.few < self.prefetch.few && Instant::now() >= grows_at + EARLY_END_TIME {
                        return None;
                    }
                    last = delivery.delivery_tag;
                    // At the stop, nobody receives messages any more, and the consumers are to be cancelled.
                    if self.sender.send(Received::new(delivery, acks)).await.is_err() && !self.stop.is_cancelled() {
                        return None;
                    }
                    wanted
                }
                Some(Err(error)) => return Some(error.into()),
                None if acks.are_done(last) => {
                    sizes = Sizes::default();
                    false
                }
                None => continue,
            };
            // The last messages of a cancelled consumer must come before another one opens.
            if wanted == second.tag.is_some() || (second.tag.is_none() && second.consumer.is_some()) {
                continue;
            }
            // Not even a stop interrupts this: the messages of a consumer that nobody knows would stay unacknowledged.
            if let Err(error) = in_time(self.change(channel, prefetch, &mut second)).await {
                return Some(error);
            }
        }
    }

    /// Cancels the second consumer, or opens one.
    async fn change(&self, channel: &Channel, prefetch: Prefetch, second: &mut Second) -> Result<(), BrokerError> {
        if let Some(tag) = second.tag.take() {
            return Ok(cancel(channel, &tag).await?);
        }
        second.opened += 1;
        let tag = second.tag.insert(format!("{CONSUMER_TAG}-{}", second.opened));
        second.consumer = Some(self.consume(channel, tag, prefetch.further()).await?);
        Ok(())
    }

    /// Cancels the consumers and requeues the messages that nobody has begun, while others end. Gives up [`CLOSE_TIMEOUT`] after
    /// all have ended. Without the cancellation, what is requeued would come to this process again.
    async fn leave(&self, channel: &Channel, consumer: Consumer, second: Second, acks: &Acks) {
        let cancelled = async {
            try_join_all(second.tag.as_deref().into_iter().chain([CONSUMER_TAG]).map(|tag| cancel(channel, tag)))
                .await?;
            for mut consumer in [Some(consumer), second.consumer].into_iter().flatten() {
                while let Some(Ok(delivery)) = consumer.next().await {
                    acks.requeue(delivery.delivery_tag);
                }
            }
            lapin::Result::Ok(())
        };
        let too_late = async {
            self.close.cancelled().await;
            sleep(CLOSE_TIMEOUT).await;
        };
        let is_cancelled = tokio::select! {
            biased;
            done = cancelled => done.is_ok(),
            () = too_late => false,
        };
        match is_cancelled {
            true => acks.consumers_cancelled(),
            false => tracing::debug!("the consumers could not be cancelled"),
        }
    }
}

/// The second consumer, for further messages while they are small.
#[derive(Default)]
struct Second {
    /// Its tag, until it is cancelled.
    tag: Option<String>,
    /// The consumer, until the last of its messages has come.
    consumer: Option<Consumer>,
    /// How many second consumers were opened.
    opened: u64,
}

/// Waits until nobody has a message any more that could be acknowledged: each message keeps `acks`.
async fn all_done(acks: &Arc<Acks>) {
    while Arc::strong_count(acks) > 1 {
        sleep(DONE_POLL_INTERVAL).await;
    }
}

/// Cancels a consumer. The messages that it was handed can still be acknowledged.
async fn cancel(channel: &Channel, tag: &str) -> lapin::Result<()> {
    channel.basic_cancel(tag.into(), BasicCancelOptions::default()).await
}

const CONSUMER_TAG: &str = "webhooks";
/// The interval at which a stopped consumer looks whether its messages are done.
const DONE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this long without a message, the sizes of the next ones are unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_waits_for_others_only_while_messages_come_fast() {
        let (mut now, wait) = (Instant::now(), Duration::from_millis(4));
        let mut gaps = Gaps::new(now);
        assert!(!gaps.are_short(wait), "nothing is known");
        let mut come = |count: u32, messages, gap| {
            for _ in 0..count {
                now += gap;
                gaps.count(messages, now);
            }
            gaps.are_short(wait)
        };
        let millis = Duration::from_millis;
        assert!(!come(1_000, 1, millis(5)), "200 a second");
        assert!(come(100, 1, millis(1)));
        assert!(come(1_000, 6, millis(5)), "1,200 a second, in batches");
        assert!(!come(100, 1, millis(5)), "over");
        come(1, 1, Duration::from_secs(3_600));
        assert!(!come(1, 10, millis(5)), "a few after a long silence");
        assert!(come(20, 10, millis(5)), "soon known");
    }
}
