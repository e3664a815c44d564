//! Resolves a host's name without a thread, so that a name with slow servers costs nobody else anything.

mod recent;
mod system;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::ResponseCode,
        rr::{Name, RecordType},
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use recent::Recent;
use system::System;

/// How many addresses of each family are considered.
const MOST_OF_A_FAMILY: usize = 16;

/// How long one family's addresses wait for those of the other.
const PATIENCE: Duration = Duration::from_millis(300);

/// How many questions may await one name server's answer over TCP.
const CONCURRENT: usize = 4096;

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    /// The DNS cannot hold such a name.
    #[error("not a name")]
    NotAName,
    /// There is no such name, or it has no address.
    #[error("no address")]
    NoAddress,
    /// A name server answered with a failure.
    #[error("a name server failed")]
    Failed,
    /// No name server answered in time.
    #[error("no name server answered")]
    Silent,
}

/// Looks up names. It does not vet what it finds.
pub(crate) struct Resolver {
    source: Source,
    recent: Recent,
    limit: Duration,
}

enum Source {
    /// The name servers of the setting only.
    Given(Vec<TokioResolver>),
    /// The system's `/etc/resolv.conf` and `/etc/hosts`.
    System(System),
}

/// Addresses, and how long they may be remembered.
type Found = Result<(Vec<IpAddr>, Duration), LookupError>;

impl Resolver {
    /// Uses these name servers, or the system's if there are none. Asks nothing yet. A lookup takes at most half of the
    /// attempt's time, which tells a name with silent servers from a silent receiver.
    ///
    /// # Errors
    /// [`NetError`] if the resolver cannot be set up.
    pub(crate) fn new(name_servers: &[SocketAddr], attempt: Duration) -> Result<Self, NetError> {
        let limit = attempt / 2;
        let source = if name_servers.is_empty() {
            Source::System(System::of_this_machine(limit)?)
        } else {
            Source::Given(clients(name_servers.iter().map(|server| name_server(*server)), limit)?)
        };
        Ok(Self { source, recent: Recent::default(), limit })
    }

    /// A notice for the operator about the system's configuration.
    pub(crate) fn notice(&self) -> Option<String> {
        match &self.source {
            Source::Given(_) => None,
            Source::System(system) => system.notice(),
        }
    }

    /// The addresses of a host: at least one. The name is absolute, with or without a final dot: no search domain is
    /// ever appended.
    pub(crate) async fn addresses(&self, host: &str) -> Result<Arc<[IpAddr]>, LookupError> {
        let mut name = Name::from_ascii(host).map_err(|_| LookupError::NotAName)?.to_lowercase();
        name.set_fqdn(true);
        let asked = Instant::now();
        if let Some(known) = self.recent.get(&name, asked) {
            return known;
        }
        let clients = match &self.source {
            Source::Given(clients) => clients.clone(),
            Source::System(system) => {
                let current = system.current(asked);
                if let Some(addresses) = current.of_hosts(&name) {
                    return Ok(addresses);
                }
                current.clients.clone()
            }
        };
        let found = first_that_knows(clients, &name, self.limit).await;
        self.recent.remember(name, found, Instant::now())
    }
}

/// Asks all name servers concurrently and takes the first answer that is not a failure, so one that is silent or fails
/// costs nothing.
async fn first_that_knows(clients: Vec<TokioResolver>, name: &Name, limit: Duration) -> Found {
    let mut questions = JoinSet::new();
    for client in clients {
        let name = name.clone();
        questions.spawn(async move { timeout(limit, both_families(&client, &name)).await });
    }
    let mut worst = LookupError::Silent;
    while let Some(answer) = questions.join_next().await {
        match answer {
            Ok(Ok(found @ (Ok(_) | Err(LookupError::NoAddress)))) => return found,
            Ok(Ok(Err(LookupError::Failed))) => worst = LookupError::Failed,
            _ => {}
        }
    }
    Err(worst)
}

/// Asks for both families at once. Some name servers never answer for a family that a name does not have, so neither
/// family waits long for the other.
async fn both_families(client: &TokioResolver, name: &Name) -> Found {
    let mut v4 = std::pin::pin!(one_family(client, name, RecordType::A));
    let mut v6 = std::pin::pin!(one_family(client, name, RecordType::AAAA));
    let (v4, v6) = tokio::select! {
        first = &mut v4 => {
            let second = patience(&first, v6).await;
            (first, second)
        }
        first = &mut v6 => (patience(&first, v4).await, first),
    };
    match (v4, v6) {
        (Ok((mut v4, v4_ttl)), Ok((v6, v6_ttl))) => {
            v4.extend(v6);
            Ok((v4, v4_ttl.min(v6_ttl)))
        }
        (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
        (Err(LookupError::NoAddress), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

async fn patience(first: &Found, second: impl Future<Output = Found>) -> Found {
    match first {
        Ok(_) => timeout(PATIENCE, second).await.unwrap_or(Err(LookupError::Silent)),
        Err(_) => second.await,
    }
}

async fn one_family(client: &TokioResolver, name: &Name, family: RecordType) -> Found {
    let lookup = client.lookup(name.clone(), family).await.map_err(|error| lookup_error(&error))?;
    let addresses = lookup.answers().iter().filter_map(|record| record.data.ip_addr());
    let addresses: Vec<_> = addresses.take(MOST_OF_A_FAMILY).collect();
    let ttl = lookup.valid_until().saturating_duration_since(std::time::Instant::now());
    if addresses.is_empty() { Err(LookupError::NoAddress) } else { Ok((addresses, ttl)) }
}

fn lookup_error(error: &NetError) -> LookupError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => LookupError::NoAddress,
            _ => LookupError::Failed,
        },
        NetError::Timeout | NetError::Io(_) | NetError::NoConnections | NetError::Busy => LookupError::Silent,
        _ => LookupError::Failed,
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// One client for each name server, whose two rounds of questions fit into the limit. UDP is repeated within each. It
/// caches nothing, as an answer may be large and `Recent` keeps what matters. It knows neither search domains nor a
/// hosts file.
fn clients(
    servers: impl IntoIterator<Item = NameServerConfig>,
    limit: Duration,
) -> Result<Vec<TokioResolver>, NetError> {
    let mut options = ResolverOpts::default();
    options.timeout = limit / 2;
    options.attempts = 1;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.max_active_requests = CONCURRENT;
    let client = |server| {
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options.clone();
        builder.build()
    };
    servers.into_iter().map(client).collect()
}
