//! A TCP proxy in front of a server, for network faults: the server is not there yet, falls silent, goes away, or does
//! what it was asked while its answer never arrives.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// What happens to the bytes of every connection, open or future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All bytes pass.
    Pass,
    /// All bytes wait, in both directions: the server seems frozen.
    Stall,
    /// The client's bytes pass, the server's bytes wait.
    HoldAnswers,
    /// The server's bytes pass. The client's bytes wait on connections whose greeting from the client contains this
    /// text.
    HoldRequests(&'static str),
    /// All bytes pass, the server's ones late.
    Late(Duration),
    /// A connection ends when the server's bytes contain this text.
    EndAt(&'static str),
    /// The server's bytes wait from this text on.
    HoldAt(&'static str),
    /// Connections end at once.
    Refuse,
}

impl Mode {
    fn passes(self, way: Way, greeting: &str) -> bool {
        match self {
            Self::Pass | Self::Late(_) | Self::EndAt(_) | Self::HoldAt(_) => true,
            Self::HoldAnswers => way == Way::There,
            Self::HoldRequests(text) => way == Way::Back || !greeting.contains(text),
            Self::Stall | Self::Refuse => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// About how many of a client's first bytes are its greeting.
const GREETING_BYTES: usize = 1024;

/// How long a target has to take a connection: one that is cut off never does.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A reserved address on which nothing listens yet.
pub struct Reserved {
    socket: TcpSocket,
}

impl Reserved {
    /// Reserves a free port. Connections to it are refused, and nobody else gets it.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn take() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("there is a free port");
        Self { socket }
    }

    /// The reserved address.
    ///
    /// # Panics
    /// When the system does not know it.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket has an address")
    }

    /// Starts a proxy on the address, in front of `target`.
    ///
    /// # Panics
    /// When the system refuses.
    #[must_use]
    pub fn forward_to(self, target: SocketAddr) -> Proxy {
        self.balance(vec![target])
    }

    /// Starts a balancer on the address: each connection goes to the next of the targets that takes it.
    ///
    /// # Panics
    /// When the system refuses.
    #[must_use]
    pub fn balance(self, targets: Vec<SocketAddr>) -> Proxy {
        let listener = self.socket.listen(1024).expect("a bound socket can listen");
        let address = listener.local_addr().expect("a listener has an address");
        let (mode, stop) = (watch::Sender::new(Mode::Pass), CancellationToken::new());
        let cut = Mutex::new(CancellationToken::new());
        let shared = Arc::new(Forwarding { targets, next: AtomicUsize::new(0), mode, cut, stop: stop.clone() });
        tokio::spawn(Arc::clone(&shared).accept(listener));
        Proxy { address, shared, _stop: stop.drop_guard() }
    }
}

/// A proxy on 127.0.0.1. Dropping it ends it and its connections.
pub struct Proxy {
    /// The address that it listens on.
    pub address: SocketAddr,
    shared: Arc<Forwarding>,
    _stop: tokio_util::sync::DropGuard,
}

impl Proxy {
    /// Starts a proxy in front of the server that a URL names. Returns the same URL with the proxy's address in it.
    ///
    /// # Panics
    /// When the URL names no address.
    #[must_use]
    pub fn before(url: &str) -> (Self, String) {
        let proxy = Reserved::take().forward_to(target(url));
        let through = redirected(url, proxy.address);
        (proxy, through)
    }

    /// Starts a proxy in front of each server of a list: brokers separated by commas, or the hosts of a database's URL.
    /// Returns the same list with the proxies' addresses in it.
    ///
    /// # Panics
    /// When the list has an element without an address.
    #[must_use]
    pub fn before_all(list: &str) -> (Vec<Self>, String) {
        let (mut proxies, mut through) = (Vec::new(), Vec::new());
        for part in list.split(',') {
            let proxy = Reserved::take().forward_to(target(part));
            through.push(part.replacen(authority(part), &proxy.address.to_string(), 1));
            proxies.push(proxy);
        }
        (proxies, through.join(","))
    }

    /// Starts a balancer in front of the brokers of a list. Returns the URL of the first with the balancer's address.
    ///
    /// # Panics
    /// When the list has an element without an address.
    #[must_use]
    pub fn balancing(list: &str) -> (Self, String) {
        let balancer = Reserved::take().balance(list.split(',').map(target).collect());
        let first = list.split(',').next().unwrap_or_default();
        let through = redirected(first, balancer.address);
        (balancer, through)
    }

    /// Sets what happens to all bytes from now on. Held bytes go on once they may pass.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.cut();
        }
    }

    /// The number of connections until now.
    pub fn connections(&self) -> usize {
        self.shared.next.load(Ordering::Relaxed)
    }

    /// Ends every connection. Held bytes are lost.
    pub fn cut(&self) {
        let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cut).cancel();
    }
}

struct Forwarding {
    targets: Vec<SocketAddr>,
    next: AtomicUsize,
    mode: watch::Sender<Mode>,
    cut: Mutex<CancellationToken>,
    stop: CancellationToken,
}

impl Forwarding {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                Some(_) = connections.join_next() => {}
                Ok((client, _)) = listener.accept() => {
                    connections.spawn(Arc::clone(&self).join(client));
                }
            }
        }
    }

    async fn connect(&self) -> Option<TcpStream> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for target in self.targets.iter().cycle().skip(first % self.targets.len()).take(self.targets.len()) {
            if let Ok(Ok(server)) = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await {
                return Some(server);
            }
        }
        None
    }

    async fn join(self: Arc<Self>, client: TcpStream) {
        let cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if *self.mode.borrow() == Mode::Refuse {
            return;
        }
        let Some(server) = self.connect().await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let there = pump(from_client, to_server, self.mode.subscribe(), &cut, Way::There);
        let back = pump(from_server, to_client, self.mode.subscribe(), &cut, Way::Back);
        tokio::select! {
            () = cut.cancelled() => {}
            _ = async { tokio::try_join!(there, back) } => {}
        }
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    cut: &CancellationToken,
    way: Way,
) -> io::Result<()> {
    let (mut buffer, mut greeting) = (vec![0; 64 * 1024], String::new());
    loop {
        let length = from.read(&mut buffer).await?;
        if greeting.len() < GREETING_BYTES {
            greeting += &String::from_utf8_lossy(&buffer[..length]);
        }
        let current = *mode.borrow();
        match current {
            Mode::EndAt(text) if way == Way::Back && contains(&buffer[..length], text) => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Mode::HoldAt(text) if way == Way::Back && contains(&buffer[..length], text) => {
                let _ = mode.wait_for(|mode| *mode != current).await;
            }
            _ => {}
        }
        if let (Mode::Late(late), Way::Back) = (current, way) {
            tokio::time::sleep(late).await;
        }
        let may_pass = mode.wait_for(|mode| mode.passes(way, &greeting)).await.is_ok();
        // Bytes that were held when the connection was cut stay lost, even if bytes may pass again.
        if !may_pass || cut.is_cancelled() || length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The address of the server in a URL.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn target(url: &str) -> SocketAddr {
    let text = authority(url);
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not an address"))
}

/// The URL with another address.
#[must_use]
pub fn redirected(url: &str, address: SocketAddr) -> String {
    url.replacen(&format!("@{}", authority(url)), &format!("@{address}"), 1)
}

/// Further hosts of a list have no credentials.
fn authority(url: &str) -> &str {
    let rest = url.split_once('@').map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}
