//! Connecting: which node is used, and what is declared on it.

use std::time::Duration;

use domain::{Presence, error_chain};
use lapin::{Channel, Connection, protocol::AMQPSoftError, uri::AMQPUri};

use crate::{
    addresses::node_of,
    broker::{Broker, CONNECT_TIMEOUT, close_unused},
    error::BrokerError,
    presence::find,
};

/// The role of a consumer that was attached a moment ago: the topology is declared.
pub(crate) const CONSUME_AGAIN: &str = "consume again";

impl Broker {
    /// Connects and declares the topology. An address that does not answer or refuses is followed by the next one. A
    /// node that has none of the queues is left alone while another one may have them: what is declared there would split
    /// the service in two.
    pub(crate) async fn connect(&self, role: &str) -> Result<(Connection, Channel), BrokerError> {
        let addresses = &self.context.addresses;
        let share = addresses.share_of(CONNECT_TIMEOUT);
        let mut failed = BrokerError::Timeout(share);
        for uri in addresses.in_order(role == "publish") {
            match tokio::time::timeout(share, self.connect_to(uri, role, share)).await {
                Ok(Ok(connected)) => {
                    self.context.tls_failure.lock().take();
                    return Ok(connected);
                }
                Ok(Err(error)) => failed = error,
                Err(_) => failed = BrokerError::Timeout(share),
            }
            if addresses.are_several() {
                let host = node_of(uri);
                tracing::warn!(host, error = error_chain(&failed), "this node of the broker cannot be used");
            }
        }
        *self.context.tls_failure.lock() = match &failed {
            BrokerError::Tls(failure) => Some(failure.clone()),
            BrokerError::File(error) => Some(tls::Failure::new(error.to_string())),
            _ => None,
        };
        Err(failed)
    }

    /// Declares the bindings of the events queue, and the events exchange if there is none: somebody may have deleted one.
    /// Who may not declare that exchange can still bind. Uses the connection for depth queries. A refusal ends only its
    /// channel, unless something is still missing: then the next connection declares everything.
    ///
    /// # Errors
    /// When the broker cannot be reached, or refuses.
    pub async fn bind_events(&self) -> Result<(), BrokerError> {
        let (names, topology) = (self.names(), &self.context.topology);
        self.query(async |connection, mut channel| {
            if !channel.status().connected() {
                channel = connection.create_channel().await?;
            }
            let mut bound = topology.bind_events(names, &channel).await.map_err(BrokerError::of_declaring);
            if bound.as_ref().is_err_and(is_lacking) {
                // The refusal has closed the other one.
                channel = connection.create_channel().await?;
                bound = match topology.declare_events(names, &channel).await {
                    Ok(()) => topology.bind_events(names, &channel).await,
                    refused => refused,
                }
                .map_err(BrokerError::of_declaring);
            }
            match bound {
                Err(error) if is_lacking(&error) => Err(error),
                Err(error) if error.is_refusal() || matches!(error, BrokerError::Differs(_)) => {
                    Ok((Err(error), channel))
                }
                bound => Ok((Ok(bound?), channel)),
            }
        })
        .await?
    }

    async fn connect_to(
        &self,
        uri: &AMQPUri,
        role: &str,
        limit: Duration,
    ) -> Result<(Connection, Channel), BrokerError> {
        let (connection, channel) = self.open(uri, role, limit).await?;
        let events = self.names().events();
        let (found, channel) = find(&connection, channel, &events).await?;
        let (connection, mut channel) = match found {
            Some(_) => (connection, channel),
            None => self.judge((connection, channel), &events, role).await?,
        };
        if !channel.status().connected() {
            channel = connection.create_channel().await?;
        }
        if role != CONSUME_AGAIN {
            let declared = self.context.topology.declare(&self.names().exchange(), &channel).await;
            declared.map_err(BrokerError::of_declaring)?;
        }
        Ok((connection, channel))
    }

    /// Returns a connection to a node that has the queue, or the same one if no node has it.
    async fn judge(
        &self,
        (connection, channel): (Connection, Channel),
        queue: &str,
        role: &str,
    ) -> Result<(Connection, Channel), BrokerError> {
        let _judging = self.context.judging.lock().await;
        // Another connection may have declared it meanwhile, of this process or of another one.
        let (found, channel) = find(&connection, channel, queue).await?;
        if found.is_some() {
            return Ok((connection, channel));
        }
        let (presence, elsewhere) = self.look_everywhere(queue, role).await;
        let (found, channel) = find(&connection, channel, queue).await?;
        let (leaving, elsewhere) = match (presence, elsewhere) {
            (Presence::Exists, Some(elsewhere)) if found.is_none() => (Some(connection), elsewhere),
            (Presence::Unknown, _) if found.is_none() => return Err(BrokerError::Doubtful),
            (_, elsewhere) => (elsewhere.map(|(other, _channel)| other), (connection, channel)),
        };
        if let Some(leaving) = leaving {
            close_unused(&leaving).await;
        }
        Ok(elsewhere)
    }
}

/// Returns whether the broker refused as an exchange or a queue does not exist.
fn is_lacking(error: &BrokerError) -> bool {
    error.refusal(AMQPSoftError::NOTFOUND).is_some()
}
