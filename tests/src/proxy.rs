//! A way to the broker that a test can block: connections stay, and nothing passes.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Forwards connections to a server. Gone when dropped.
pub struct Proxy {
    address: SocketAddr,
    open: Arc<watch::Sender<bool>>,
    _stop: DropGuard,
}

impl Proxy {
    /// Starts before the server of a URL such as `amqp://user:password@host:port/vhost`; returns it and the URL that
    /// leads through it.
    ///
    /// # Panics
    /// When the URL has no host and port.
    pub async fn before(url: &str) -> (Self, String) {
        let (credentials, rest) = url.split_once('@').expect("the URL has credentials");
        let (server, path) = rest.split_once('/').expect("the URL has a path");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let open = Arc::new(watch::Sender::new(true));
        let stop = CancellationToken::new();
        let forwarding = forward(listener, server.to_owned(), Arc::clone(&open));
        tokio::spawn(stop.clone().run_until_cancelled_owned(forwarding));
        let through = format!("{credentials}@{address}/{path}");
        (Self { address, open, _stop: stop.drop_guard() }, through)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing pass any more, in neither direction.
    pub fn block(&self) {
        self.open.send_replace(false);
    }

    /// Lets everything pass, also what has waited.
    pub fn unblock(&self) {
        self.open.send_replace(true);
    }
}

async fn forward(listener: TcpListener, server: String, open: Arc<watch::Sender<bool>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&server).await else { continue };
        let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
        connections.spawn(pass(client_in, server_out, open.subscribe()));
        connections.spawn(pass(server_in, client_out, open.subscribe()));
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin + Send,
    mut to: impl AsyncWriteExt + Unpin + Send,
    mut open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if open.wait_for(|open| *open).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
