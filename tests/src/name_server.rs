//! A name server for one test, on UDP and TCP. It writes DNS messages by hand, not with the library that reads them.

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

/// The length limit of an answer over UDP to a query without EDNS, in bytes. A longer answer is truncated.
const PLAIN_UDP_LIMIT: usize = 512;

/// What the server answers about a name.
#[derive(Clone, Debug)]
pub enum Say {
    /// These addresses, each for the query of its family. Without any, the name exists and has no address.
    Addresses(Vec<IpAddr>),
    /// The same with a TTL in seconds. Every other answer has a TTL of 0.
    Lasting(u32, Vec<IpAddr>),
    /// The name is an alias of another name, which has these addresses. One answer holds both.
    Alias(String, Vec<IpAddr>),
    /// The name is an alias of another name, which the client has to query.
    Referral(String),
    /// NXDOMAIN: there is no such name.
    NoSuchName,
    /// SERVFAIL.
    Failure,
    /// No answer at all.
    Silence,
    /// These addresses for IPv4 queries, no answer at all for IPv6 queries.
    SilentAboutIpv6(Vec<IpAddr>),
    /// FORMERR to a query with EDNS, these addresses to one without.
    OnlyWithoutEdns(Vec<IpAddr>),
    /// Truncated over UDP, these addresses over TCP.
    Truncated(Vec<IpAddr>),
}

/// A name server that answers as a script says.
pub struct NameServer {
    address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

type Script = dyn Fn(&str, usize) -> Say + Send + Sync;

struct State {
    script: Box<Script>,
    /// The number of queries for each name and type.
    asked: Mutex<HashMap<(String, u16), usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl NameServer {
    /// Starts the server. The script gets the name, in lower case and without a final dot, and the number of earlier
    /// queries for the same name and type.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(script: impl Fn(&str, usize) -> Say + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("it is bound");
        let state = Arc::new(State { script: Box::new(script), asked: Mutex::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&state).serve_udp(udp));
        tasks.spawn(Arc::clone(&state).serve_tcp(tcp));
        Self { address, state, _tasks: tasks }
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of address queries for the name: of A or of AAAA, whichever is larger.
    #[must_use]
    pub fn asked(&self, name: &str) -> usize {
        let asked = self.state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        [A, AAAA].iter().filter_map(|kind| asked.get(&(name.to_owned(), *kind))).copied().max().unwrap_or(0)
    }

    /// Every name that was queried.
    pub fn names(&self) -> Vec<String> {
        let asked = self.state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = asked.keys().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// UDP and TCP on the same port.
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
            Say::OnlyWithoutEdns(_) if question.has_additional => return Some(question.reply(1, false, &[])),
            Say::Truncated(_) if transport == Transport::Udp => return Some(question.reply(0, true, &[])),
            Say::SilentAboutIpv6(addresses) | Say::OnlyWithoutEdns(addresses) | Say::Truncated(addresses) => {
                (0, None, addresses)
            }
        };
        let owner = alias.as_deref().unwrap_or(&question.name);
        let mut records: Vec<_> =
            alias.iter().map(|alias| record(&question.name, CNAME, ttl, &encoded(alias))).collect();
        records.extend(addresses.iter().filter_map(|address| match (address, question.kind) {
            (IpAddr::V4(v4), A) => Some(record(owner, A, ttl, &v4.octets())),
            (IpAddr::V6(v6), AAAA) => Some(record(owner, AAAA, ttl, &v6.octets())),
            _ => None,
        }));
        let reply = question.reply(0, false, &records);
        let is_too_long = transport == Transport::Udp && !question.has_additional && reply.len() > PLAIN_UDP_LIMIT;
        Some(if is_too_long { question.reply(0, true, &[]) } else { reply })
    }
}

struct Question<'a> {
    id: &'a [u8],
    /// The question as it came, with type and class.
    bytes: &'a [u8],
    name: String,
    kind: u16,
    /// True if the query has additional records, as one with EDNS has.
    has_additional: bool,
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
        Some(Self {
            id: message.get(..2)?,
            bytes: message.get(12..at + 4)?,
            name: labels.join("."),
            kind,
            has_additional: message.get(10..12)? != [0, 0],
        })
    }

    fn reply(&self, code: u8, truncated: bool, records: &[Vec<u8>]) -> Vec<u8> {
        let count = u16::try_from(records.len()).expect("the script fits into a message").to_be_bytes();
        // A response to a recursive query, with recursion available.
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
