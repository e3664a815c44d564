//! A receiver that does what a test tells it to, byte by byte.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    /// How many connections were accepted.
    accepted: Arc<AtomicUsize>,
    /// How many of them are open.
    open: watch::Receiver<usize>,
    /// The maximum of them that were open at a time.
    most_open: Arc<AtomicUsize>,
    /// Every request that was read to its end.
    received: Arc<Mutex<Vec<Received>>>,
    _tasks: JoinSet<()>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Up to and including the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// One TLS connection, and its number, counted from zero.
pub(crate) struct Peer {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) number: usize,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Peer {
    /// The next request, or none at the end of the connection.
    pub(crate) async fn request(&mut self) -> Option<Received> {
        let received = read_request(&mut self.stream).await?;
        self.received.lock().unwrap().push(received.clone());
        Some(received)
    }

    /// Sends bytes. Returns false if the client has gone.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Waits for the end of the connection.
    pub(crate) async fn gone(mut self) {
        while self.stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
    }
}

impl Receiver {
    /// Serves every TLS connection with a program of the test's own.
    pub(crate) async fn tls<F>(acceptor: TlsAcceptor, program: impl Fn(Peer) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let (program, received) = (Arc::new(program), Arc::<Mutex<Vec<Received>>>::default());
        let log = Arc::clone(&received);
        let mut receiver = Self::tcp(move |tcp, number| {
            let (acceptor, program, received) = (acceptor.clone(), Arc::clone(&program), Arc::clone(&log));
            async move {
                if let Ok(stream) = acceptor.accept(tcp).await {
                    program(Peer { stream, number, received }).await;
                }
            }
        })
        .await;
        receiver.received = received;
        receiver
    }

    /// Reads a request, sends the same bytes to each connection and closes it.
    pub(crate) async fn closing(acceptor: TlsAcceptor, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::tls(acceptor, move |mut peer| {
            let answer = answer.clone();
            async move {
                peer.request().await;
                peer.send(&answer).await;
            }
        })
        .await
    }

    /// Answers every request with the same bytes, and keeps the connection open.
    pub(crate) async fn answering(acceptor: TlsAcceptor, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::tls(acceptor, move |mut peer| {
            let answer = answer.clone();
            async move {
                while peer.request().await.is_some() {
                    if !peer.send(&answer).await {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Serves every TCP connection with a program of the test's own, without TLS.
    pub(crate) async fn tcp<F>(program: impl Fn(TcpStream, usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        // Listens on every address of both families, or of IPv4 only.
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let (accepted, (count, open)) = (Arc::<AtomicUsize>::default(), watch::channel(0));
        let most_open = Arc::<AtomicUsize>::default();
        let most = Arc::clone(&most_open);
        let (number, program, mut tasks) = (Arc::clone(&accepted), Arc::new(program), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (program, number, count) = (Arc::clone(&program), number.fetch_add(1, SeqCst), count.clone());
                count.send_modify(|open| *open += 1);
                most.fetch_max(*count.borrow(), SeqCst);
                connections.spawn(async move {
                    program(tcp, number).await;
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, accepted, open, most_open, received: Arc::default(), _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/hook", self.address)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(SeqCst)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for the first connection.
    pub(crate) async fn first_connection(&self) {
        timeout(Duration::from_secs(3), self.open.clone().changed()).await.expect("nobody connects").unwrap();
    }

    /// Waits until every connection has ended.
    pub(crate) async fn all_closed(&self) {
        self.open_at_most(0).await;
    }

    /// Waits until at least `least` connections are open.
    pub(crate) async fn open_at_least(&self, least: usize) {
        let opened = timeout(Duration::from_secs(3), self.open.clone().wait_for(|open| *open >= least)).await.is_ok();
        assert!(opened, "{} connections are open", *self.open.borrow());
    }

    /// Waits until at most `most` connections are open.
    pub(crate) async fn open_at_most(&self, most: usize) {
        let closed = timeout(Duration::from_secs(3), self.open.clone().wait_for(|open| *open <= most)).await.is_ok();
        assert!(closed, "{} connections are still open", *self.open.borrow());
    }
}

/// Reads a request to the end of its body, by `Content-Length`.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { head, body })
}
