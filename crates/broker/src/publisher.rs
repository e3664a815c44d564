//! Publishing with confirms.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use lapin::{Channel, Connection, ConnectionStatus, options::ConfirmSelectOptions};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    broker::{Broker, close, in_time},
    confirms::{ConfirmResult, Confirms, queue, sent},
    error::{BrokerError, PublishError, Unconfirmed},
    message::Outgoing,
};

/// The messages of one call and queue that wait for their confirms at a time. Hundreds of messages leave in several
/// windows, so that other tenants' messages get between them.
const WINDOW_MESSAGES: usize = 32;
/// The window of a bulk publish, whose rate is bounded by what is in flight.
const BULK_WINDOW_MESSAGES: usize = 256;
/// The interval at which the supervisor checks that the connection is open.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time for which a channel is in use before a refusal may replace it.
const MIN_CHANNEL_AGE: Duration = Duration::from_secs(5);

/// Publishes messages and waits until the broker has confirmed them. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    broker: Broker,
    exchange: String,
    established: watch::Receiver<Option<Established>>,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
struct Established {
    channel: Channel,
    /// Held while messages are numbered and queued. lapin does one after the other: of two callers at once, one could
    /// take the other's confirm for its own.
    order: Arc<Mutex<()>>,
    /// When the broker last confirmed or refused something.
    answered: Arc<Mutex<Instant>>,
    /// Whether a message was refused on the channel.
    refused: Arc<AtomicBool>,
    /// Notified when nothing was answered for as long as a confirm may take.
    silent: Arc<Notify>,
    connection: ConnectionStatus,
    /// Cancelled when the connection failed, or gave no further channel on request. Each connection has its own, so a
    /// late failure never ends the next connection.
    suspect: CancellationToken,
}

impl Broker {
    /// Starts to publish, over a connection that is kept until `stop`.
    pub fn publisher(&self, stop: CancellationToken) -> Publisher {
        self.publisher_to(self.names().exchange(), stop)
    }

    /// Starts to publish business events, as an upstream service does, over a connection that is kept until `stop`. The
    /// `queue` of a message is its event type.
    pub fn upstream(&self, stop: CancellationToken) -> Publisher {
        self.publisher_to(self.names().events_exchange.clone(), stop)
    }

    fn publisher_to(&self, exchange: String, stop: CancellationToken) -> Publisher {
        let (sender, established) = watch::channel(None);
        self.essential().spawn("publisher", supervise(self.clone(), sender, stop));
        Publisher { broker: self.clone(), exchange, established }
    }
}

impl Publisher {
    /// Publishes messages and returns once the broker has confirmed all of them. Messages of different queues do not
    /// wait for one another. Messages of one queue leave in order.
    ///
    /// # Errors
    /// Says which messages the broker is not known to have. A missing confirm is waited for as long as
    /// [`crate::BrokerConfig::confirm_timeout`] says.
    pub async fn publish<M: Borrow<Outgoing>>(&self, messages: &[M]) -> Result<(), Unconfirmed> {
        self.publish_within(messages, WINDOW_MESSAGES, self.broker.context.config.confirm_timeout).await
    }

    /// The same for a caller that no lease limits. It waits ten times as long for a missing confirm, while the
    /// connection answers others. A queue without a leader confirms its messages once it has one, so publishing again
    /// would make a duplicate.
    ///
    /// # Errors
    /// Says which messages the broker is not known to have.
    pub async fn publish_patiently<M: Borrow<Outgoing>>(&self, messages: &[M]) -> Result<(), Unconfirmed> {
        self.publish_within(messages, WINDOW_MESSAGES, self.broker.context.config.confirm_timeout * 10).await
    }

    /// The same for very many messages: more of them are in flight at a time. It needs a publisher of its own.
    ///
    /// # Errors
    /// Says which messages the broker is not known to have.
    pub async fn publish_bulk<M: Borrow<Outgoing>>(&self, messages: &[M]) -> Result<(), Unconfirmed> {
        self.publish_within(messages, BULK_WINDOW_MESSAGES, self.broker.context.config.confirm_timeout * 10).await
    }

    async fn publish_within<M: Borrow<Outgoing>>(
        &self,
        messages: &[M],
        window: usize,
        patience: Duration,
    ) -> Result<(), Unconfirmed> {
        let mut queues = BTreeMap::<&str, Vec<usize>>::new();
        for (place, message) in messages.iter().enumerate() {
            queues.entry(&message.borrow().routing_key).or_default().push(place);
        }
        let queues = queues.into_values().map(|places| self.publish_in_order(messages, places, (window, patience)));
        let mut failed: Vec<_> = join_all(queues).await.into_iter().flatten().collect();
        failed.sort_unstable_by_key(|(place, _)| *place);
        let places = failed.iter().map(|(place, _)| *place).collect();
        let Some((first, error)) = failed.into_iter().next() else { return Ok(()) };
        self.broker.context.stats.publish_failures.inc();
        let (all, queue, error) = (messages.len(), messages[first].borrow().routing_key.clone(), Box::new(error));
        Err(Unconfirmed { places, all, queue, error })
    }

    /// Publishes the messages at these places, all of one queue, and returns those that failed. A refusal is an answer,
    /// and the next messages may be taken. After any other error, the rest is not tried.
    async fn publish_in_order<M: Borrow<Outgoing>>(
        &self,
        messages: &[M],
        places: Vec<usize>,
        (window, patience): (usize, Duration),
    ) -> Vec<(usize, PublishError)> {
        let (mut failed, mut hopeless) = (Vec::new(), None::<PublishError>);
        for places in places.chunks(window) {
            let answers = match hopeless.clone() {
                Some(error) => vec![Err(error); places.len()],
                None => {
                    let window: Vec<_> = places.iter().map(|place| messages[*place].borrow()).collect();
                    self.publish_window(&window, patience).await
                }
            };
            for (place, answer) in places.iter().zip(answers) {
                let Err(error) = answer else { continue };
                if !matches!(error, PublishError::Refused) {
                    hopeless.get_or_insert_with(|| error.clone());
                }
                failed.push((*place, error));
            }
        }
        failed
    }

    /// Whether there is a connection, and the broker takes messages.
    ///
    /// # Errors
    /// When there is none, or the broker blocks it.
    pub fn check(&self) -> Result<(), String> {
        match self.established.borrow().as_ref() {
            Some(established) if established.connection.blocked() => Err("blocked by the broker".to_owned()),
            Some(established) if established.channel.status().connected() => Ok(()),
            _ => Err(match self.broker.tls_failure() {
                Some(failure) => format!("not connected: {failure}"),
                None => "not connected".to_owned(),
            }),
        }
    }

    /// Publishes messages together and returns what became of each.
    async fn publish_window(&self, window: &[&Outgoing], patience: Duration) -> Vec<ConfirmResult> {
        let timeout = self.broker.context.config.confirm_timeout;
        let (began, mut watched) = (Instant::now(), self.established.clone());
        let established = match timeout_at(began + timeout, watched.wait_for(Option::is_some)).await {
            Ok(Ok(established)) => established.clone(),
            _ => None,
        };
        let Some(established) = established else { return vec![Err(PublishError::NotConnected); window.len()] };
        if established.connection.blocked() {
            return vec![Err(PublishError::Blocked); window.len()];
        }
        let queued = {
            let _order = established.order.lock();
            queue(&established.channel, &self.exchange, window)
        };
        let mut confirms = match timeout_at(began + timeout, sent(queued)).await {
            Ok(Ok(confirms)) => confirms,
            Ok(Err(error)) => return established.failed(error.into(), window.len()),
            Err(_) => return established.failed(PublishError::Timeout(timeout), window.len()),
        };
        let mut deadline = began + timeout;
        while timeout_at(deadline, confirms.wait()).await.is_err() {
            confirms.take_those_there();
            established.note(&mut confirms);
            // A queue that answers nothing is no failure of the connection, as long as the connection answers.
            if !established.has_answered_since(deadline - timeout) {
                established.silent.notify_one();
            }
            if established.suspect.is_cancelled() || deadline >= began + patience {
                break;
            }
            deadline += timeout;
        }
        established.note(&mut confirms);
        confirms.into_answers(began.elapsed())
    }
}

impl Established {
    /// Marks the connection as failed, unless it is blocked. Every message fails with the same error.
    fn failed(&self, error: PublishError, messages: usize) -> Vec<ConfirmResult> {
        self.suspect();
        vec![Err(error); messages]
    }

    fn suspect(&self) {
        if !self.connection.blocked() {
            self.suspect.cancel();
        }
    }

    /// Notes what the answers say about the connection.
    fn note(&self, confirms: &mut Confirms) {
        if std::mem::take(&mut confirms.has_news) {
            self.answers();
        }
        if confirms.is_refused {
            self.refused.store(true, Ordering::Relaxed);
        }
        if confirms.is_faulty {
            self.suspect();
        }
    }

    fn answers(&self) {
        *self.answered.lock() = Instant::now();
    }

    fn has_answered_since(&self, moment: Instant) -> bool {
        *self.answered.lock() >= moment
    }
}

async fn supervise(broker: Broker, sender: watch::Sender<Option<Established>>, stop: CancellationToken) {
    let mut backoff = Backoff::default();
    while !stop.is_cancelled() {
        match in_time(open(&broker)).await {
            Ok((connection, channel)) => {
                backoff = Backoff::default();
                let (status, suspect) = (connection.status().clone(), CancellationToken::new());
                let answered = Arc::new(Mutex::new(Instant::now()));
                let (order, refused, silent) = (Arc::default(), Arc::default(), Arc::default());
                let established =
                    Established { channel, order, answered, refused, silent, connection: status, suspect };
                sender.send_replace(Some(established.clone()));
                watch_over(&connection, established, &sender, &stop).await;
                sender.send_replace(None);
                if stop.is_cancelled() {
                    close(&connection).await;
                } else {
                    broker.context.stats.reconnects.inc();
                    tracing::warn!("the publishing connection to the broker failed; connecting again");
                }
            }
            Err(error) => error.warn(),
        }
        stop.run_until_cancelled(backoff.pause()).await;
    }
}

async fn open(broker: &Broker) -> Result<(Connection, Channel), BrokerError> {
    let (connection, channel) = broker.connect("publish").await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

/// Returns when the connection or its channel is closed, when it is marked as failed, or at the stop. An open
/// connection that is blocked is kept: another would be blocked as well, and this one could not even be closed.
///
/// A connection that has answered nothing for long is asked for a further channel, and is kept if it gives one: a queue
/// without a leader answers nothing and holds up its channel.
///
/// A channel on which a queue refused something may never hear that the queue takes messages again: RabbitMQ does not
/// say so when a limit is lifted. So another channel replaces it, every 5 s at most. Its callers finish on the old one.
async fn watch_over(
    connection: &Connection,
    mut established: Established,
    sender: &watch::Sender<Option<Established>>,
    stop: &CancellationToken,
) {
    let (mut look, mut renewed) = (tokio::time::interval(POLL_INTERVAL), Instant::now());
    loop {
        let is_silent = tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => false,
            () = established.suspect.cancelled(), if !established.connection.blocked() => return,
            () = established.silent.notified(), if !established.connection.blocked() => true,
        };
        if !established.connection.connected() || !established.channel.status().connected() {
            return;
        }
        let is_refused = established.refused.load(Ordering::Relaxed) && renewed.elapsed() >= MIN_CHANNEL_AGE;
        if (is_silent || is_refused) && !established.connection.blocked() {
            if is_silent {
                // Nothing is published until the connection is known to work.
                sender.send_replace(None);
            }
            // A connection that answers this works, however silent a queue is.
            let Ok(channel) = in_time(confirming(connection)).await else { return established.suspect() };
            established = Established { channel, order: Arc::default(), refused: Arc::default(), ..established };
            established.answers();
            sender.send_replace(Some(established.clone()));
            renewed = Instant::now();
        }
    }
}

/// Opens a further channel with confirms.
async fn confirming(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}
