//! A look at the broker that changes nothing there: what exists, with which arguments, and how much waits.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lapin::{
    BasicProperties, Channel, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions},
    protocol::AMQPSoftError,
    types::FieldTable,
};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    addresses::node_of,
    broker::{Broker, close_unused},
    error::BrokerError,
    topology::{Exchange, Queue},
};

/// The time for which the broker waits for a queue's leader before it says that the queue is empty.
const LEADER_TIMEOUT: Duration = Duration::from_millis(250);
/// The number of questions whose answer may be that the queue is empty.
const MAX_TRIES: usize = 4;

/// An address of the broker, and how it answers.
#[derive(Debug)]
pub struct NodeSeen {
    /// `host:port`.
    pub address: String,
    /// Why it cannot be used, if it cannot.
    pub fault: Option<BrokerError>,
}

/// An exchange or a queue, as the broker has it.
#[derive(Debug)]
pub enum Seen {
    /// There is none of this name.
    Missing,
    /// It exists.
    Present {
        /// How many messages of a queue are ready.
        ready: u32,
        /// How many consumers a queue has.
        consumers: u32,
        /// What it has otherwise than the topology, in the broker's words.
        differs: Option<String>,
    },
    /// The broker does not say.
    Unknown(BrokerError),
}

/// A connection that only looks. It declares nothing that is not there already.
pub struct Examiner {
    connection: Connection,
    broker: Broker,
    patience: Duration,
}

impl Broker {
    /// Tries every address at once, each for `patience`. Returns how they answer, and an examiner at the first of them
    /// that lets us in. Each of its steps takes `patience` at most.
    pub async fn examine(&self, patience: Duration) -> (Vec<NodeSeen>, Option<Examiner>) {
        let tries = join_all(self.context.addresses.all().map(|uri| async move {
            let opened = timeout(patience, self.dial(uri, "examine", patience)).await;
            (uri, opened.unwrap_or(Err(BrokerError::Timeout(patience))))
        }));
        let (mut seen, mut examiner) = (Vec::new(), None);
        for (uri, opened) in tries.await {
            let fault = match opened {
                Ok(connection) if examiner.is_none() => {
                    examiner = Some(Examiner { connection, broker: self.clone(), patience });
                    None
                }
                Ok(connection) => {
                    close_unused(&connection).await;
                    None
                }
                Err(fault) => Some(fault),
            };
            seen.push(NodeSeen { address: node_of(uri), fault });
        }
        (seen, examiner)
    }

    /// The virtual host.
    pub fn vhost(&self) -> String {
        self.context.addresses.all().next().map(|uri| uri.vhost.clone()).unwrap_or_default()
    }
}

impl Examiner {
    /// How the broker has a queue of the topology.
    pub async fn queue(&self, queue: &Queue) -> Seen {
        let exchange = self.broker.names().exchange();
        let declare = async |channel: &Channel| {
            let options = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(queue.name.as_str().into(), options, queue.arguments(&exchange)).await.map(drop)
        };
        self.compared(self.passive_queue(&queue.name).await, declare).await
    }

    /// How the broker has a queue, whatever its arguments are. A leader that is silent looks like an empty queue without
    /// consumers, a quarter of a second late: so such an answer is asked for again, and believed only if it is prompt.
    pub async fn passive_queue(&self, queue: &str) -> Seen {
        for _ in 0..MAX_TRIES {
            let asked = Instant::now();
            let seen = self.on_channel(async |channel| {
                let passive = QueueDeclareOptions { passive: true, ..Default::default() };
                let queue = channel.queue_declare(queue.into(), passive, FieldTable::default()).await?;
                Ok(Seen::Present { ready: queue.message_count(), consumers: queue.consumer_count(), differs: None })
            });
            match missing_or(seen.await) {
                Seen::Present { ready: 0, consumers: 0, .. } if asked.elapsed() >= LEADER_TIMEOUT => {}
                seen => return seen,
            }
        }
        Seen::Unknown(BrokerError::Timeout(LEADER_TIMEOUT))
    }

    /// How the broker has an exchange of the topology.
    pub async fn exchange(&self, exchange: &Exchange) -> Seen {
        let declare = async |channel: &Channel, passive: bool| {
            let options = ExchangeDeclareOptions { durable: true, passive, ..Default::default() };
            let (name, kind) = (exchange.name.as_str(), exchange.kind.clone());
            channel.exchange_declare(name.into(), kind, options, exchange.arguments()).await
        };
        let there = self.on_channel(async |channel| {
            declare(channel, true).await?;
            Ok(Seen::Present { ready: 0, consumers: 0, differs: None })
        });
        self.compared(missing_or(there.await), async |channel| declare(channel, false).await).await
    }

    /// Whether the broker takes no messages, being short of memory or disk. It says so to whom publishes only. So this
    /// publishes a message in a transaction that it rolls back: no queue ever gets it.
    ///
    /// # Errors
    /// When the broker does not answer, or has not the service's exchange.
    pub async fn is_blocked(&self) -> Result<bool, BrokerError> {
        let exchange = self.broker.names().exchange();
        let taken = self.on_channel(async |channel| {
            channel.tx_select().await?;
            let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
            channel.basic_publish(exchange.as_str().into(), "".into(), options, &[], properties).await?;
            channel.tx_rollback().await
        });
        let taken = taken.await;
        if self.connection.status().blocked() {
            return Ok(true);
        }
        taken.map(|()| false)
    }

    /// Returns true if the broker accepts a message of this size, in bytes. No queue ever gets the message: it is
    /// addressed to one that does not exist. The limit (`max_message_size`) is shown nowhere else, neither by AMQP nor by
    /// RabbitMQ's management API.
    ///
    /// # Errors
    /// When the broker does not answer, or is blocked.
    pub async fn accepts(&self, bytes: usize) -> Result<bool, BrokerError> {
        let nowhere = Uuid::new_v4().to_string();
        let published = self.on_channel(async |channel| {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let (options, properties, body) =
                (BasicPublishOptions::default(), BasicProperties::default(), vec![b' '; bytes]);
            channel.basic_publish("".into(), nowhere.into(), options, &body, properties).await?.await.map(drop)
        });
        match published.await {
            Ok(()) => Ok(true),
            Err(error) => error.refusal(AMQPSoftError::PRECONDITIONFAILED).map(|_| false).ok_or(error),
        }
    }

    /// Leaves. Takes 750 ms at most.
    pub async fn close(self) {
        close_unused(&self.connection).await;
    }

    /// Declares what exists as the topology has it: that changes nothing. The broker says if it has it otherwise.
    async fn compared(&self, seen: Seen, declare: impl AsyncFnOnce(&Channel) -> Result<(), lapin::Error>) -> Seen {
        let Seen::Present { ready, consumers, .. } = seen else { return seen };
        let differs = match self.on_channel(declare).await {
            Ok(()) => None,
            Err(error) => match error.refusal(AMQPSoftError::PRECONDITIONFAILED) {
                None => return Seen::Unknown(error),
                differs => differs,
            },
        };
        Seen::Present { ready, consumers, differs }
    }

    /// On a channel of its own, as a refusal closes it.
    async fn on_channel<T>(
        &self,
        step: impl AsyncFnOnce(&Channel) -> Result<T, lapin::Error>,
    ) -> Result<T, BrokerError> {
        let step = async {
            let channel = self.connection.create_channel().await?;
            step(&channel).await
        };
        timeout(self.patience, step).await.map_err(|_| BrokerError::Timeout(self.patience))?.map_err(Into::into)
    }
}

fn missing_or(seen: Result<Seen, BrokerError>) -> Seen {
    match seen {
        Ok(seen) => seen,
        Err(error) if error.refusal(AMQPSoftError::NOTFOUND).is_some() => Seen::Missing,
        Err(error) => Seen::Unknown(error),
    }
}
