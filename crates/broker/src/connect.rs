//! Connecting: which node is used, and what is declared on it.

use lapin::{Channel, Connection, uri::AMQPUri};

use crate::{
    error::BrokerError,
    link::{Broker, CONNECT_TIMEOUT, farewell},
    presence::{Presence, find},
};

impl Broker {
    /// Connects and declares the topology. An address that does not answer or refuses is followed by the next one, and so
    /// is a node that has none of the queues while another one may have them: what is declared there would split the
    /// service in two.
    pub(crate) async fn connect(&self, role: &str) -> Result<(Connection, Channel), BrokerError> {
        let addresses = &self.shared.addresses;
        let share = addresses.share_of(CONNECT_TIMEOUT);
        let mut failed = BrokerError::Timeout(share);
        for uri in addresses.in_order(role == "publish") {
            match tokio::time::timeout(share, self.connect_to(uri, role)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = BrokerError::Timeout(share),
            }
            if addresses.are_several() {
                let host = format!("{}:{}", uri.authority.host, uri.authority.port);
                tracing::warn!(
                    host,
                    error = &failed as &dyn std::error::Error,
                    "this node of the broker cannot be used"
                );
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, uri: &AMQPUri, role: &str) -> Result<(Connection, Channel), BrokerError> {
        let (connection, channel) = self.open(uri, role).await?;
        let events = self.shared.names.events();
        let (found, mut channel) = find(&connection, channel, &events).await?;
        if found.is_none() {
            let _judging = self.shared.judging.lock().await;
            channel = self.judge(&connection, channel, &events).await?;
        }
        if !channel.status().connected() {
            channel = connection.create_channel().await?;
        }
        self.shared.topology.declare(&self.shared.names.exchange(), &channel).await?;
        Ok((connection, channel))
    }

    /// Checks that no other node has the queue that this one lacks.
    async fn judge(&self, connection: &Connection, channel: Channel, queue: &str) -> Result<Channel, BrokerError> {
        let (found, channel) = find(connection, channel, queue).await?;
        if found.is_some() {
            return Ok(channel);
        }
        let (presence, elsewhere) = self.look_everywhere(queue).await;
        if let Some((elsewhere, _channel)) = elsewhere {
            farewell(&elsewhere).await;
        }
        // Another process may have declared it meanwhile.
        let (found, channel) = find(connection, channel, queue).await?;
        match presence {
            Presence::Exists if found.is_none() => Err(BrokerError::Stranger),
            Presence::Unknown if found.is_none() => Err(BrokerError::Doubtful),
            _ => Ok(channel),
        }
    }
}
