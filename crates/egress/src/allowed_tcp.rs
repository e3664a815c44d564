//! TCP connections to addresses that the policy allows, and to no others.

use std::{
    collections::HashSet,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use domain::{AddressPolicy, RefusedAddress, WebhookUrl};
use hyper::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tower_service::Service;

use crate::{
    connect_error::ConnectError,
    host::{bare_host, without_brackets},
    resolver::Resolver,
};

/// The maximum of addresses of each family that are tried: a network without IPv4 may have no way to any of the first family.
const MAX_TRIED_PER_FAMILY: usize = 4;
/// The maximum of internal hosts that are remembered. Beyond it, all are learned again.
const MAX_INTERNAL_HOSTS: usize = 10_000;

/// Resolves a host once, vets every address and tries those that are left, one after the other. The order varies.
#[derive(Clone)]
pub(crate) struct AllowedTcp(Arc<Inner>);

struct Inner {
    address_policy: AddressPolicy,
    resolver: Resolver,
    timeout: Duration,
    /// The hosts of which no address is public, as their latest connections found.
    internal: Mutex<HashSet<String>>,
}

impl AllowedTcp {
    /// The timeout covers resolving and all addresses of a host together.
    pub(crate) fn new(address_policy: AddressPolicy, resolver: Resolver, timeout: Duration) -> Self {
        Self(Arc::new(Inner { address_policy, resolver, timeout, internal: Mutex::default() }))
    }

    /// Returns whether the host of a receiver's URL had no public address when it was last connected to.
    pub(crate) fn is_internal(&self, url: &str) -> bool {
        let Inner { address_policy, internal, .. } = &*self.0;
        if internal.lock().is_empty() {
            return false;
        }
        let url = WebhookUrl::parse(url, usize::MAX, address_policy);
        let host = url.as_ref().ok().and_then(|url| url.as_url().host_str()).map(without_brackets);
        host.is_some_and(|host| internal.lock().contains(host))
    }
}

impl Inner {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let deadline = Instant::now() + self.timeout;
        let port = uri.port_u16().unwrap_or(443);
        self.address_policy.check_port(port).map_err(ConnectError::RefusedPort)?;
        let addresses = varied(self.addresses(bare_host(uri)).await?);
        self.note(bare_host(uri), &addresses);
        let others = addresses.len() - 1;
        let mut failed = None;
        for (tried, address) in addresses.into_iter().enumerate() {
            let address = SocketAddr::new(address, port);
            let error = match timeout(share(deadline, others - tried), TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without it, a request in several writes waits for acknowledgements. It still goes, so a failure
                    // is ignored.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(source)) => source,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            failed = Some(telling(failed, (address, error)));
        }
        let (address, source) = failed.ok_or(ConnectError::Slow)?;
        Err(ConnectError::Tcp { address, others, source })
    }

    /// Notes whether a host with these addresses is internal.
    fn note(&self, host: &str, addresses: &[IpAddr]) {
        let mut internal = self.internal.lock();
        if addresses.iter().any(|address| is_public(*address)) {
            internal.remove(host);
        } else if !internal.contains(host) {
            if internal.len() >= MAX_INTERNAL_HOSTS {
                internal.clear();
            }
            internal.insert(host.to_owned());
        }
    }

    /// The allowed addresses of a host: at least one.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        if let Ok(literal) = IpAddr::from_str(host) {
            self.address_policy.check_address(literal).map_err(ConnectError::RefusedLiteral)?;
            return Ok(vec![literal]);
        }
        self.address_policy.check_host(host).map_err(ConnectError::RefusedHost)?;
        let found = self.resolver.addresses(host).await;
        let found = found.map_err(|source| ConnectError::Unresolved { host: host.to_owned(), source })?;
        allowed(&self.address_policy, &found)
            .map_err(|source| ConnectError::RefusedName { host: host.to_owned(), source })
    }
}

/// The failure to report of two. That this machine has no route to an address of one family says nothing of the receiver.
fn telling(first: Option<(SocketAddr, io::Error)>, next: (SocketAddr, io::Error)) -> (SocketAddr, io::Error) {
    let is_route = |(_, error): &(SocketAddr, io::Error)| {
        let code = error.raw_os_error();
        matches!(code, Some(libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN))
    };
    match first {
        Some(first) if !is_route(&first) && is_route(&next) => first,
        _ => next,
    }
}

/// Returns whether an address is public.
#[cfg(not(debug_assertions))]
fn is_public(address: IpAddr) -> bool {
    AddressPolicy::is_public(address)
}

/// Returns whether an address is public. A fault point for tests: so are those in `WEBHOOKS_FAULT_PUBLIC`, separated by commas.
#[cfg(debug_assertions)]
fn is_public(address: IpAddr) -> bool {
    static PUBLIC: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("WEBHOOKS_FAULT_PUBLIC").unwrap_or_default());
    PUBLIC.split(',').any(|public| public == address.to_string()) || AddressPolicy::is_public(address)
}

/// The time for one address. Each but the last leaves time for the next ones and for what follows connecting.
fn share(deadline: Instant, further: usize) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    match u32::try_from(further) {
        Ok(0) | Err(_) => left,
        Ok(further) => left / (further + 2),
    }
}

/// Some addresses of each family, in a random order. Otherwise every attempt would meet the same first one, even one that
/// accepts connections and never answers. The first one's family stays first: another may lead nowhere, and receivers may
/// know this service by its addresses of one family.
fn varied(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    fastrand::shuffle(&mut addresses);
    let (first, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|one| one.is_ipv4() == first_is_v4);
    first.into_iter().take(MAX_TRIED_PER_FAMILY).chain(other.into_iter().take(MAX_TRIED_PER_FAMILY)).collect()
}

/// Drops the addresses that the policy refuses. If none is left, returns the first refusal.
fn allowed(address_policy: &AddressPolicy, found: &[IpAddr]) -> Result<Vec<IpAddr>, RefusedAddress> {
    let mut refusal = None;
    let mut kept = Vec::new();
    for address in found {
        match address_policy.check_address(*address) {
            Ok(()) => kept.push(*address),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    match refusal {
        Some(refused) if kept.is_empty() => Err(refused),
        _ => Ok(kept),
    }
}

impl Service<Uri> for AllowedTcp {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.connect(&uri).await })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use domain::AddressFault;

    use super::*;

    fn allowing(network: &str) -> AddressPolicy {
        AddressPolicy::allowing(vec![network.parse().unwrap()])
    }

    fn allowed_of(found: &[&str]) -> Result<Vec<IpAddr>, AddressFault> {
        let found: Vec<_> = found.iter().map(|address| address.parse().unwrap()).collect();
        allowed(&allowing("10.1.0.0/16"), &found).map_err(|refused| refused.fault)
    }

    #[test]
    fn refused_addresses_are_dropped_and_all_refused_is_an_error() {
        let public: IpAddr = "8.8.8.8".parse().unwrap();
        let allowed: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(allowed_of(&["127.0.0.1", "8.8.8.8", "::1", "10.1.2.3"]), Ok(vec![public, allowed]));
        assert_eq!(allowed_of(&["10.2.0.1", "fe80::1"]), Err(AddressFault::NotPublic("private")));
    }

    #[test]
    fn any_address_may_come_first_among_those_of_the_first_one_s_family() {
        for (v4, v6) in [(3, 0), (0, 3), (3, 2)] {
            let v4 = (0..v4).map(|last| IpAddr::from([192, 0, 2, last]));
            let v6 = (0..v6).map(|last| IpAddr::from([0x2606, 0, 0, 0, 0, 0, 0, last]));
            for given in [v4.clone().chain(v6.clone()).collect::<Vec<_>>(), v6.clone().chain(v4.clone()).collect()] {
                let mut first = HashSet::new();
                for _ in 0..200 {
                    let varied = varied(given.clone());
                    first.insert(varied[0]);
                    assert!(varied.iter().map(IpAddr::is_ipv4).eq(given.iter().map(IpAddr::is_ipv4)), "{varied:?}");
                    assert!(given.iter().all(|address| varied.contains(address)), "{varied:?}");
                }
                assert_eq!(first.len(), given.iter().filter(|a| a.is_ipv4() == given[0].is_ipv4()).count());
            }
        }
        assert!(varied(Vec::new()).is_empty());
        let many =
            (0..20).map(|last| IpAddr::from([192, 0, 2, last])).chain([IpAddr::from([0x2606, 0, 0, 0, 0, 0, 0, 1])]);
        let varied = varied(many.collect());
        assert_eq!((varied.len(), varied.iter().filter(|one| one.is_ipv6()).count()), (MAX_TRIED_PER_FAMILY + 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_but_the_last_leaves_time_for_the_others_and_for_the_answer() {
        let second = Duration::from_secs(1);
        let deadline = Instant::now() + 12 * second;
        assert_eq!([0, 1, 2, 4].map(|further| share(deadline, further)), [12, 4, 3, 2].map(|part| part * second));
    }

    #[test]
    fn a_missing_route_to_one_family_does_not_hide_what_the_receiver_did() {
        let of = |address: &str, code| (format!("{address}:443").parse().unwrap(), io::Error::from_raw_os_error(code));
        let refused = || of("192.0.2.1", libc::ECONNREFUSED);
        let nowhere = || of("[2606::1]", libc::ENETUNREACH);
        let told = |first, next| telling(Some(first), next).1.raw_os_error();
        assert_eq!(told(refused(), nowhere()), Some(libc::ECONNREFUSED));
        assert_eq!(told(nowhere(), refused()), Some(libc::ECONNREFUSED));
        assert_eq!(told(nowhere(), nowhere()), Some(libc::ENETUNREACH));
        assert_eq!(telling(None, nowhere()).1.raw_os_error(), Some(libc::ENETUNREACH));
    }

    #[tokio::test]
    async fn a_host_is_internal_while_none_of_its_addresses_is_public() {
        let limit = Duration::from_secs(1);
        let address_policy = AddressPolicy::allowing(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        let tcp = AllowedTcp::new(address_policy, Resolver::new(&[], limit).unwrap(), limit);
        let note = |host: &str, addresses: &[&str]| {
            tcp.0.note(host, &addresses.iter().map(|address| address.parse().unwrap()).collect::<Vec<_>>());
        };
        assert!(!tcp.is_internal("https://a.example/"), "it was never connected to");
        for (host, url) in [("a.example", "https://A.example:8443/x"), ("::1", "https://[::1]/")] {
            note(host, &["127.0.0.1", "::1"]);
            assert!(tcp.is_internal(url), "{url}");
        }
        note("a.example", &["127.0.0.1", "8.8.8.8"]);
        assert!(!tcp.is_internal("https://a.example/") && tcp.is_internal("https://[::1]/"));
        (0..2 * MAX_INTERNAL_HOSTS).for_each(|number| note(&format!("{number}.example"), &["127.0.0.1"]));
        assert!(tcp.0.internal.lock().len() <= MAX_INTERNAL_HOSTS);
    }

    #[tokio::test]
    async fn the_connection_goes_to_the_allowed_address_and_its_port() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let limit = Duration::from_secs(1);
        let tcp = AllowedTcp::new(allowing("127.0.0.0/8"), Resolver::new(&[], limit).unwrap(), limit);
        let address = listener.local_addr().unwrap();
        let stream = tcp.0.connect(&format!("https://{address}/").parse().unwrap()).await.unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), address);
        assert!(stream.inner().nodelay().unwrap());
    }
}
