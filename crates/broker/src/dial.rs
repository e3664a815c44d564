//! A connection to one node, over TLS or not. lapin would choose the authorities by itself, and knows no client's
//! configuration; and its thread would wait for a silent node for ever, whether or not its caller waits.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    time::Duration,
};

use async_rs::Runtime;
use lapin::{
    Connection, ConnectionProperties,
    tcp::{AMQPUriTcpExt, AsyncTcpStream, RustlsConnector},
    uri::{AMQPScheme, AMQPUri},
};
use parking_lot::Mutex;
use tls::ClientFiles;
use tokio::time::timeout;

use crate::{
    error::BrokerError,
    repair::{self, RepairedStream},
};

/// The socket of a connection that is being made. Dropping it shuts the socket down, which ends lapin's thread.
#[derive(Default)]
struct Unfinished(Mutex<Option<TcpStream>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(socket) = self.0.get_mut().take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Connects to a node. Reads the files for each connection over TLS, so a certificate that was replaced needs no restart.
/// TCP and TLS together have the limit. Dropping the future ends the attempt.
pub(crate) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
    files: &ClientFiles,
    limit: Duration,
) -> Result<Connection, BrokerError> {
    let connector = match uri.scheme {
        AMQPScheme::AMQP => None,
        AMQPScheme::AMQPS => Some(RustlsConnector::from(files.read()?)),
    };
    let tokio = Runtime::tokio_current();
    let unfinished = Arc::new(Unfinished::default());
    let wanted = Arc::downgrade(&unfinished);
    let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
    let connecting = Connection::connector(
        uri,
        repair::runtime(),
        async move |uri, _runtime| {
            let host = uri.authority.host.clone();
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri };
            let handshake = async {
                let stream = plain.connect_async(&tokio).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    let socket = plain.get_ref().as_fd().try_clone_to_owned()?;
                    *wanted.upgrade().ok_or_else(timed_out)?.0.lock() = Some(socket.into());
                }
                match &connector {
                    Some(connector) => stream.into_rustls(connector, &host).await,
                    None => Ok(stream),
                }
            };
            let stream = timeout(limit, handshake).await.unwrap_or_else(|_| Err(timed_out()))?;
            Ok(AsyncTcpStream::Plain(RepairedStream::new(stream)))
        },
        properties,
    );
    let connection = connecting.await.map_err(BrokerError::of_connecting)?;
    unfinished.0.lock().take();
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_node_that_accepts_and_is_silent_keeps_no_socket_of_an_attempt_that_was_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("amqp://{}", silent.local_addr().unwrap()).parse().unwrap();
        let node = std::thread::spawn(move || {
            let (mut peer, _) = silent.accept().unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut sent = Vec::new();
            peer.read_to_end(&mut sent).map(|_| sent)
        });
        let files = ClientFiles::default();
        let connecting = connect(uri, ConnectionProperties::default(), &files, Duration::from_secs(10));
        assert!(timeout(Duration::from_millis(300), connecting).await.is_err(), "it is silent");
        assert_eq!(node.join().unwrap().unwrap(), b"AMQP\x00\x00\x09\x01");
    }
}
