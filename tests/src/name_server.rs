//! A name server of a test's own, on UDP and TCP. It writes DNS messages by hand, so that what the service reads is not
//! made by the library that it reads with.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// What it says about a name.
#[derive(Clone, Debug)]
pub enum Say {
    /// These addresses, each to the question for its family. Without any: the name exists and has none.
    Addresses(Vec<IpAddr>),
    /// The same, to be remembered for so many seconds. Else it is none.
    Lasting(u32, Vec<IpAddr>),
    /// The name is another one's alias, which has these addresses. Both are in one answer.
    Alias(String, Vec<IpAddr>),
    /// The name is another one's alias: ask for that.
    Referral(String),
    /// There is no such name.
    NoSuchName,
    /// I cannot tell.
    Failure,
    /// Nothing, ever.
    Silence,
    /// These addresses for who asks for IPv4, and nothing, ever, for who asks for IPv6.
    SilentAboutIpv6(Vec<IpAddr>),
    /// Over UDP only that the answer is too long; these addresses over TCP.
    Truncated(Vec<IpAddr>),
}

/// Says what a script tells it to.
pub struct NameServer {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

type Script = dyn Fn(&str, usize) -> Say + Send + Sync;

struct State {
    script: Box<Script>,
    /// How often each name was asked for with each type.
    asked: Mutex<HashMap<(String, u16), usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl NameServer {
    /// Starts it. The script gets the name, in lower case and without a dot at its end, and how often it was asked for
    /// before with the same type.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(script: impl Fn(&str, usize) -> Say + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("it is bound");
        let state = Arc::new(State { script: Box::new(script), asked: Mutex::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&state).serve_udp(udp));
        tasks.spawn(Arc::clone(&state).serve_tcp(tcp));
        Self { address, state, _tasks: tasks }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How often addresses of the name were asked for, of the family that was asked for more often.
    #[must_use]
    pub fn asked(&self, name: &str) -> usize {
        let asked = self.state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        [A, AAAA].iter().filter_map(|kind| asked.get(&(name.to_owned(), *kind))).copied().max().unwrap_or(0)
    }

    /// Every name that was asked for.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let asked = self.state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = asked.keys().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The same port for both.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port is free");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("it is bound")).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

impl State {
    async fn serve_udp(self: Arc<Self>, socket: UdpSocket) {
        let mut message = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut message).await {
            if let Some(answer) = self.answer(&message[..length], Transport::Udp) {
                let _ = socket.send_to(&answer, peer).await;
            }
        }
    }

    async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(Arc::clone(&self).serve_connection(stream));
        }
    }

    async fn serve_connection(self: Arc<Self>, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u16().await {
            let mut message = vec![0; usize::from(length)];
            if stream.read_exact(&mut message).await.is_err() {
                return;
            }
            let Some(answer) = self.answer(&message, Transport::Tcp) else { continue };
            let length = u16::try_from(answer.len()).expect("the script fits into a message");
            if stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let question = Question::read(message)?;
        let before = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let count = asked.entry((question.name.clone(), question.kind)).or_default();
            *count += 1;
            *count - 1
        };
        let (ttl, alias, addresses) = match (self.script)(&question.name, before) {
            Say::Addresses(addresses) => (0, None, addresses),
            Say::Lasting(ttl, addresses) => (ttl, None, addresses),
            Say::Alias(alias, addresses) => (0, Some(alias), addresses),
            Say::Referral(alias) => (0, Some(alias), Vec::new()),
            Say::NoSuchName => return Some(question.reply(3, false, &[])),
            Say::Failure => return Some(question.reply(2, false, &[])),
            Say::Silence => return None,
            Say::SilentAboutIpv6(_) if question.kind == AAAA => return None,
            Say::Truncated(_) if transport == Transport::Udp => return Some(question.reply(0, true, &[])),
            Say::SilentAboutIpv6(addresses) | Say::Truncated(addresses) => (0, None, addresses),
        };
        let owner = alias.as_deref().unwrap_or(&question.name);
        let mut records: Vec<_> =
            alias.iter().map(|alias| record(&question.name, CNAME, ttl, &encoded(alias))).collect();
        records.extend(addresses.iter().filter_map(|address| match (address, question.kind) {
            (IpAddr::V4(v4), A) => Some(record(owner, A, ttl, &v4.octets())),
            (IpAddr::V6(v6), AAAA) => Some(record(owner, AAAA, ttl, &v6.octets())),
            _ => None,
        }));
        Some(question.reply(0, false, &records))
    }
}

struct Question<'a> {
    id: &'a [u8],
    /// As it came, with type and class.
    bytes: &'a [u8],
    name: String,
    kind: u16,
}

impl<'a> Question<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let (mut at, mut labels) = (12, Vec::new());
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
        Some(Self { id: message.get(..2)?, bytes: message.get(12..at + 4)?, name: labels.join("."), kind })
    }

    fn reply(&self, code: u8, truncated: bool, records: &[Vec<u8>]) -> Vec<u8> {
        let count = u16::try_from(records.len()).expect("the script fits into a message").to_be_bytes();
        // A response to a query for recursion, which was available.
        let flags = [0x81 | u8::from(truncated) << 1, 0x80 | code];
        let counts = [0, 1, count[0], count[1], 0, 0, 0, 0];
        [self.id, &flags, &counts, self.bytes, &records.concat()].concat()
    }
}

fn record(owner: &str, kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("it is short");
    [&encoded(owner)[..], &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("a label is short"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}
