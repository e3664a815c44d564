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
    time::{Instant, timeout, timeout_at},
};

use recent::Recent;
use system::System;

use crate::no_descriptor::NoDescriptor;

/// The maximum of addresses of each family that are considered.
const MAX_ADDRESSES_PER_FAMILY: usize = 16;

/// The time that one family's addresses wait for those of the other, and the answer that there is no such name for the
/// other name servers.
const SECOND_ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// The questions that may await one name server's answer over TCP.
const MAX_TCP_QUESTIONS: usize = 4096;

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LookupError {
    /// There is no such name, or it has no address. The DNS may not even be able to hold it.
    #[error("no address")]
    NoAddress,
    /// A name server answered with a failure.
    #[error("a name server failed")]
    Failed,
    /// No name server answered in time.
    #[error("no name server answered")]
    Silent,
    /// No descriptor was left to ask a name server.
    #[error("no descriptor is left")]
    NoDescriptor,
}

/// Looks up names. It does not check the addresses that it finds.
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
type LookupResult = Result<(Vec<IpAddr>, Duration), LookupError>;

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
        let mut name = Name::from_ascii(host).map_err(|_| LookupError::NoAddress)?.to_lowercase();
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
        let mut questions = JoinSet::new();
        for client in clients {
            let name = name.clone();
            questions.spawn(async move { both_families(&client, &name).await });
        }
        let found = match first_that_knows(questions, asked + self.limit).await {
            // The client does not say why it had no socket.
            Err(LookupError::Silent | LookupError::Failed) if NoDescriptor::is_now() => Err(LookupError::NoDescriptor),
            found => found,
        };
        self.recent.remember(name, found, Instant::now())
    }
}

/// Returns the first addresses that any name server has, so one that is silent or fails costs nothing. One that knows no
/// such name may know less than the others, which get a little more time then.
async fn first_that_knows(mut questions: JoinSet<LookupResult>, deadline: Instant) -> LookupResult {
    let (mut error, mut end) = (LookupError::Silent, deadline);
    while let Ok(Some(answer)) = timeout_at(end, questions.join_next()).await {
        match answer {
            Ok(found @ Ok(_)) => return found,
            Ok(Err(LookupError::NoAddress)) if error != LookupError::NoAddress => {
                error = LookupError::NoAddress;
                end = deadline.min(Instant::now() + SECOND_ANSWER_TIMEOUT);
            }
            Ok(Err(LookupError::Failed)) if error == LookupError::Silent => error = LookupError::Failed,
            _ => {}
        }
    }
    Err(error)
}

/// Asks for both families at once. Some name servers never answer for a family that a name does not have, so neither
/// family waits long for the other.
async fn both_families(client: &TokioResolver, name: &Name) -> LookupResult {
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

async fn patience(first: &LookupResult, second: impl Future<Output = LookupResult>) -> LookupResult {
    match first {
        Ok(_) => timeout(SECOND_ANSWER_TIMEOUT, second).await.unwrap_or(Err(LookupError::Silent)),
        Err(_) => second.await,
    }
}

async fn one_family(client: &TokioResolver, name: &Name, family: RecordType) -> LookupResult {
    let lookup = client.lookup(name.clone(), family).await.map_err(|error| lookup_error(&error))?;
    let addresses = lookup.answers().iter().filter_map(|record| record.data.ip_addr());
    let addresses: Vec<_> = addresses.take(MAX_ADDRESSES_PER_FAMILY).collect();
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
/// hosts file. It asks without EDNS, as the C library does: some name servers and firewalls answer EDNS with a failure,
/// with a bare header, or not at all, and an answer of more than 512 bytes comes over TCP.
fn clients(
    servers: impl IntoIterator<Item = NameServerConfig>,
    limit: Duration,
) -> Result<Vec<TokioResolver>, NetError> {
    let mut options = ResolverOpts::default();
    options.timeout = limit / 2;
    options.attempts = 1;
    options.edns0 = false;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.max_active_requests = MAX_TCP_QUESTIONS;
    let client = |server| {
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options.clone();
        builder.build()
    };
    servers.into_iter().map(client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_such_name_waits_a_little_for_a_name_server_that_knows_it() {
        let found: LookupResult = Ok((vec![[192, 0, 2, 1].into()], Duration::ZERO));
        let missing: LookupResult = Err(LookupError::NoAddress);
        let failed: LookupResult = Err(LookupError::Failed);
        for (answers, expected, after) in [
            (vec![(1, &missing)], &missing, 1),
            (vec![(1, &missing), (300, &found)], &found, 300),
            (vec![(1, &missing), (200, &missing), (302, &found)], &missing, 301),
            (vec![(1, &missing), (2, &failed)], &missing, 2),
            (vec![(1, &failed), (2, &missing), (900, &found)], &missing, 302),
            (vec![(1, &failed), (900, &found)], &found, 900),
            (vec![(900, &missing), (1100, &found)], &missing, 1000),
            (vec![(1, &failed), (1100, &found)], &failed, 1000),
            (vec![(1100, &found)], &Err(LookupError::Silent), 1000),
        ] {
            let (asked, mut questions) = (Instant::now(), JoinSet::new());
            for (millis, answer) in answers {
                let answer = answer.clone();
                questions.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    answer
                });
            }
            assert_eq!(&first_that_knows(questions, asked + Duration::from_secs(1)).await, expected);
            assert_eq!(asked.elapsed(), Duration::from_millis(after));
        }
    }
}
