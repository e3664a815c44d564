//! The upstream service. It publishes as fast as possible, or at a fixed pace whatever happens.

use std::{
    collections::VecDeque,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt, stream};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::load::{Load, unix_micros};

/// The most messages that wait for their confirms.
const MAX_UNCONFIRMED: usize = 500;

/// A connection that publishes persistent messages and gets a confirm for each.
pub(crate) struct Publisher {
    _connection: Connection,
    channel: Channel,
}

impl Publisher {
    pub(crate) async fn connect(amqp_url: &str) -> Self {
        let properties = ConnectionProperties::default().with_connection_name("bench (publish)".into());
        let connection = Connection::connect(amqp_url, properties).await.expect("the broker answers");
        let channel = connection.create_channel().await.expect("a channel opens");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("the broker confirms");
        Self { _connection: connection, channel }
    }

    /// Publishes as fast as the broker confirms.
    pub(crate) async fn flood(&self, load: &Load, count: u64) {
        self.flood_within(load, count, async |_| ()).await;
    }

    /// Like `flood`, but publishes each message only when `room_for` returns.
    pub(crate) async fn flood_within(&self, load: &Load, count: u64, room_for: impl AsyncFn(u64)) {
        let messages = stream::iter(0..count).then(async |number| {
            room_for(number).await;
            (load.make)(number, unix_micros())
        });
        self.send_all(load, messages).await;
    }

    /// Publishes ready messages to the load's exchange and routing key.
    pub(crate) async fn send_all(&self, load: &Load, messages: impl Stream<Item = Vec<u8>>) {
        let mut confirms = VecDeque::with_capacity(MAX_UNCONFIRMED);
        let mut messages = pin!(messages);
        while let Some(message) = messages.next().await {
            if confirms.len() == MAX_UNCONFIRMED {
                confirmed(confirms.pop_front()).await;
            }
            confirms.push_back(send(&self.channel, load, &message).await);
        }
        while !confirms.is_empty() {
            confirmed(confirms.pop_front()).await;
        }
    }

    /// Publishes at a fixed pace. Each message has its time, from which its latency is measured, however late it is
    /// sent. Returns the number of messages.
    pub(crate) fn pace(&self, load: Load, per_second: f64, lasting: Duration) -> JoinHandle<u64> {
        self.pace_while(load, per_second, move |after| after < lasting)
    }

    /// Like `pace`, for as long as `goes_on` accepts the time since the first message.
    pub(crate) fn pace_while(
        &self,
        load: Load,
        per_second: f64,
        goes_on: impl Fn(Duration) -> bool + Send + 'static,
    ) -> JoinHandle<u64> {
        let (channel, runtime) = (self.channel.clone(), tokio::runtime::Handle::current());
        let (sender, mut confirms) = mpsc::unbounded_channel();
        let confirming = tokio::spawn(async move {
            while let Some(confirm) = confirms.recv().await {
                confirmed(Some(confirm)).await;
            }
        });
        // A thread, because its sleep is more exact than the runtime's timer, which counts in milliseconds.
        let sending = tokio::task::spawn_blocking(move || {
            let (began, epoch) = (Instant::now(), unix_micros());
            let mut number = 0_u32;
            loop {
                let after = Duration::from_secs_f64(f64::from(number) / per_second);
                if !goes_on(after) {
                    return u64::from(number);
                }
                #[expect(clippy::disallowed_methods, reason = "it is a thread of its own")]
                std::thread::sleep(after.saturating_sub(began.elapsed()));
                let sent = epoch + u64::try_from(after.as_micros()).unwrap_or_default();
                let message = (load.make)(u64::from(number), sent);
                let _ = sender.send(runtime.block_on(send(&channel, &load, &message)));
                number += 1;
            }
        });
        tokio::spawn(async move {
            let sent = sending.await.expect("publishing does not panic");
            confirming.await.expect("every message is confirmed");
            sent
        })
    }
}

async fn send(channel: &Channel, load: &Load, message: &[u8]) -> PublisherConfirm {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let properties = BasicProperties::default().with_delivery_mode(2);
    let (exchange, routing_key) = (load.exchange.as_str().into(), load.routing_key.as_str().into());
    channel.basic_publish(exchange, routing_key, options, message, properties).await.expect("the channel is open")
}

async fn confirmed(confirm: Option<PublisherConfirm>) {
    if let Some(confirm) = confirm {
        assert_eq!(confirm.await.expect("a confirm comes"), Confirmation::Ack(None));
    }
}
