//! Whether the broker has a queue. A blank node, which has lost its disk or its cluster, answers differently from its
//! peers.

use domain::Presence;
use futures_util::future::join_all;
use lapin::{
    Channel, Connection, Queue,
    options::QueueDeclareOptions,
    protocol::AMQPSoftError,
    types::{AMQPValue, FieldTable},
    uri::AMQPUri,
};

use crate::{
    addresses::node_of,
    broker::{Broker, CONNECT_TIMEOUT, close_unused, in_time},
    error::BrokerError,
};

/// Looks at a single address, each over a connection of its own: there may be several nodes behind it.
const CHECKS_PER_ADDRESS: usize = 5;

/// An answer of a node.
enum Look {
    Has(Box<(Connection, Channel)>),
    Lacks,
    Silent,
}

impl Broker {
    /// Whether a queue exists. If the node of the kept connection lacks it, all nodes are asked. If another one has it,
    /// further queries go there.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn presence(&self, queue: &str) -> Result<Presence, BrokerError> {
        if self.depth(queue).await?.is_some() {
            return Ok(Presence::Exists);
        }
        let (presence, found) = self.look_everywhere(queue, "depth").await;
        if let Some(found) = found
            && let Some((connection, _channel)) = self.context.depths.lock().await.replace(found)
        {
            close_unused(&connection).await;
        }
        Ok(presence)
    }

    /// Declares a sentinel (crates/README.md, queues): a queue that is lost only with the broker's disk. It is durable, and kept
    /// where the jobs are kept.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn sentinel_declare(&self, queue: &str) -> Result<(), BrokerError> {
        let (connection, channel) = self.connect("sentinel").await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        in_time(async { Ok(channel.queue_declare(queue.into(), options, arguments).await?) }).await?;
        in_time(async { Ok(connection.close(200, "bye".into()).await?) }).await
    }

    /// Asks each address, or several times the only one. Returns the first connection to a node that has the queue.
    pub(crate) async fn look_everywhere(&self, queue: &str, role: &str) -> (Presence, Option<(Connection, Channel)>) {
        let addresses = &self.context.addresses;
        let again = if addresses.are_several() { 1 } else { CHECKS_PER_ADDRESS };
        let uris: Vec<_> = std::iter::repeat_n((), again).flat_map(|()| addresses.in_order(false)).collect();
        let looks = join_all(uris.iter().map(|uri| self.look(uri, queue, role))).await;
        let lacking = looks.iter().filter(|look| matches!(look, Look::Lacks)).count();
        if lacking < looks.len() {
            let mut lacking: Vec<_> =
                uris.iter().zip(&looks).filter(|(_, look)| matches!(look, Look::Lacks)).map(|(uri, _)| uri).collect();
            lacking.dedup_by_key(|uri| node_of(uri));
            for uri in lacking {
                self.warn_of_lack(uri, queue, role).await;
            }
        }
        let mut found = None;
        for look in looks {
            match look {
                Look::Has(connected) if found.is_none() => found = Some(*connected),
                Look::Has(connected) => close_unused(&connected.0).await,
                Look::Lacks | Look::Silent => {}
            }
        }
        (Presence::of(uris.len(), usize::from(found.is_some()), lacking), found)
    }

    /// Warns of a node that lacks a queue, if it still does: at a first start, another process may have declared the queue
    /// between two looks.
    async fn warn_of_lack(&self, uri: &AMQPUri, queue: &str, role: &str) {
        match self.look(uri, queue, role).await {
            Look::Has(connected) => close_unused(&connected.0).await,
            Look::Silent => {}
            Look::Lacks => {
                let node = node_of(uri);
                tracing::warn!(
                    node,
                    queue,
                    "this node of the broker lacks a queue that others may have: if it is not a part of their cluster, \
                     join it to them, or take it out of broker.url (WEBHOOKS__BROKER__URL) or the balancer"
                );
            }
        }
    }

    async fn look(&self, uri: &AMQPUri, queue: &str, role: &str) -> Look {
        // A look is a part of connecting, which has this share of the time.
        let patience = self.context.addresses.share_of(CONNECT_TIMEOUT) / 2;
        let look = async {
            let (connection, channel) = self.open(uri, role, patience).await?;
            let (found, channel) = find(&connection, channel, queue).await?;
            if found.is_some() {
                return Ok(Look::Has(Box::new((connection, channel))));
            }
            close_unused(&connection).await;
            Ok::<_, BrokerError>(Look::Lacks)
        };
        tokio::time::timeout(patience, in_time(look)).await.map_or(Look::Silent, |look| look.unwrap_or(Look::Silent))
    }
}

/// Declares a queue passively. Returns the channel too, as asking for a queue that does not exist closes the channel.
pub(crate) async fn find(
    connection: &Connection,
    mut channel: Channel,
    queue: &str,
) -> Result<(Option<Queue>, Channel), BrokerError> {
    if !channel.status().connected() {
        channel = connection.create_channel().await?;
    }
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let declared = channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
    match declared.map_err(BrokerError::from) {
        Ok(queue) => Ok((Some(queue), channel)),
        Err(error) if error.refusal(AMQPSoftError::NOTFOUND).is_some() => Ok((None, channel)),
        Err(error) => Err(error),
    }
}
