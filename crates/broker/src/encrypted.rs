//! Connections over TLS. lapin would choose the authorities by itself, and knows no client's configuration.

use std::{io, time::Duration};

use lapin::{
    Connection, ConnectionProperties,
    runtime::default_runtime,
    tcp::{AMQPUriTcpExt, RustlsConnector},
    uri::{AMQPScheme, AMQPUri},
};
use tls::ClientFiles;
use tokio::time::timeout;

use crate::error::BrokerError;

/// Connects over TLS. Reads the files for each connection, so a certificate that was replaced needs no restart.
///
/// lapin's thread makes the connection, and would wait for a silent server for ever, whether or not its caller waits. So
/// the handshake has a limit of its own.
pub(crate) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
    files: &ClientFiles,
    limit: Duration,
) -> Result<Connection, BrokerError> {
    let connector = RustlsConnector::from(files.read()?);
    let runtime = default_runtime().map_err(BrokerError::Amqp)?;
    let connecting = Connection::connector(
        uri,
        runtime,
        async move |uri, runtime| {
            let host = uri.authority.host.clone();
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri };
            let handshake = async { plain.connect_async(&runtime).await?.into_rustls(&connector, &host).await };
            let in_time = timeout(limit, handshake).await;
            Ok(in_time.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))?)
        },
        properties,
    );
    connecting.await.map_err(BrokerError::of_connecting)
}
