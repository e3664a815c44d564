//! TLS over TCP to an allowed address, within a deadline.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use crate::{
    allowed_tcp::AllowedTcp,
    connect_error::ConnectError,
    connection_counts::ConnectionCounts,
    connects::bounded,
    guarded::{Guarded, Layers},
    host::server_name,
};

type Tls = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Makes the client's connections. It has a deadline of its own: no request's deadline reaches a connect in the
/// background.
#[derive(Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<AllowedTcp>,
    timeout: Duration,
    counts: ConnectionCounts,
}

impl Connector {
    pub(crate) fn new(tcp: AllowedTcp, tls: ClientConfig, timeout: Duration, counts: ConnectionCounts) -> Self {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .with_server_name_resolver(server_name)
            .enable_http1()
            .wrap_connector(tcp);
        Self { https, timeout, counts }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Guarded<Tls>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri);
        let (limit, counts) = (self.timeout, self.counts.clone());
        Box::pin(bounded(async move {
            match timeout(limit, connecting).await {
                Ok(Ok(stream)) => Ok(TokioIo::new(Guarded::new(TokioIo::new(stream), limit, &counts))),
                Ok(Err(error)) => Err(error.downcast().map_or_else(ConnectError::Tls, |error| *error)),
                Err(_) => Err(ConnectError::Slow),
            }
        }))
    }
}

fn tcp(stream: &Tls) -> &TcpStream {
    match stream.inner() {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    }
}

impl Layers for Tls {
    /// A receiver's system may send the first of two small writes, such as a session ticket and an answer, and the next
    /// one only when that is acknowledged: after 40 ms, or never if the receiver closes its connection with unread bytes
    /// meanwhile. It holds until the next write.
    fn acknowledge(&self) {
        #[cfg(target_os = "linux")]
        let _ = tcp(self).set_quickack(true);
    }

    fn send_close_notify(&mut self) {
        if let MaybeHttpsStream::Https(tls) = self.inner_mut() {
            tls.inner_mut().get_mut().1.send_close_notify();
        }
    }

    fn poll_read_lowest(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(tcp(self).poll_read_ready(cx))?;
            match tcp(self).try_read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{AddressPolicy, WebhookUrl};
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;
    use crate::{connects::Connects, resolver::Resolver};

    #[tokio::test]
    async fn a_handshake_that_stalls_ends_without_a_request_that_waits_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let limit = Duration::from_millis(100);
        let address_policy = AddressPolicy::allowing(vec!["127.0.0.0/8".parse().unwrap()]);
        let (parsed, connects) = (WebhookUrl::parse(&url, 100, &address_policy).unwrap(), Connects::default());
        let tcp = AllowedTcp::new(address_policy, Resolver::new(&[], limit).unwrap(), limit);
        let connecting = Connector::new(tcp, tls::client_config(None).unwrap(), limit, ConnectionCounts::default())
            .call(url.parse().unwrap());
        let connecting = connects.attempt(&parsed, connecting);
        let receiver = async {
            let (mut tcp, _) = listener.accept().await.unwrap();
            while tcp.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        };
        let both = async { tokio::join!(connecting, receiver) };
        let (connected, ()) = timeout(Duration::from_secs(3), both).await.unwrap();
        assert!(matches!(connected, Err(ConnectError::Slow)));
    }
}
