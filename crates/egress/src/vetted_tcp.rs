//! TCP to addresses that the policy allows, and to no others.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use domain::{AddressPolicy, RefusedAddress};
use hyper::Uri;
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::{causes::find, fault::ConnectFault, tls::bare_host};

/// Resolves once, vets every address and connects to those that are left, IPv6 and IPv4 side by side.
#[derive(Clone)]
pub(crate) struct VettedTcp {
    policy: Arc<AddressPolicy>,
    timeout: Duration,
}

impl VettedTcp {
    /// The timeout is for all addresses of a host together.
    pub(crate) fn new(policy: AddressPolicy, timeout: Duration) -> Self {
        Self { policy: Arc::new(policy), timeout }
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectFault> {
        let port = uri.port_u16().unwrap_or(443);
        let addresses = self.addresses(bare_host(&uri), port).await?;
        // hyper's connector skips its resolver when the host is an address. It never sees the host here, only this
        // name that every connection shares, so that it has no address but the vetted ones (with their ports).
        let mut tcp = HttpConnector::new_with_resolver(Vetted(addresses.clone()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.timeout));
        tcp.call(Uri::from_static("https://vetted.invalid")).await.map_err(|error| {
            // hyper does not name this error's type; its cause is an `io::Error`.
            let source = find(&error).map_or_else(|| io::Error::other("no cause"), same);
            ConnectFault::Tcp { address: addresses[0], others: addresses.len() - 1, source }
        })
    }

    /// The vetted addresses of a host: at least one.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectFault> {
        if let Ok(literal) = IpAddr::from_str(host) {
            self.policy.check(literal).map_err(ConnectFault::RefusedLiteral)?;
            return Ok(vec![SocketAddr::new(literal, port)]);
        }
        let name = Name::from_str(host).map_err(|_| ConnectFault::InvalidName { host: host.to_owned() })?;
        let found = GaiResolver::new()
            .call(name)
            .await
            .map_err(|error| ConnectFault::Unresolved { host: host.to_owned(), source: Some(error) })?;
        match vet(&self.policy, found.map(|found| found.ip())) {
            Ok(vetted) if vetted.is_empty() => Err(ConnectFault::Unresolved { host: host.to_owned(), source: None }),
            Ok(vetted) => Ok(vetted.into_iter().map(|address| SocketAddr::new(address, port)).collect()),
            Err(source) => Err(ConnectFault::RefusedName { host: host.to_owned(), source }),
        }
    }
}

/// Drops what the policy refuses. If nothing is left, that is the first refusal; of nothing, nothing is left.
fn vet(policy: &AddressPolicy, found: impl Iterator<Item = IpAddr>) -> Result<Vec<IpAddr>, RefusedAddress> {
    let mut refusal = None;
    let mut vetted = Vec::new();
    for address in found {
        match policy.check(address) {
            Ok(()) => vetted.push(address),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    match refusal {
        Some(refused) if vetted.is_empty() => Err(refused),
        _ => Ok(vetted),
    }
}

/// `io::Error` is not `Clone`.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

impl Service<Uri> for VettedTcp {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectFault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// The answer to every question: the vetted addresses.
#[derive(Clone)]
struct Vetted(Vec<SocketAddr>);

impl Service<Name> for Vetted {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(self.0.clone().into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vetted(found: &[&str]) -> Result<Vec<IpAddr>, &'static str> {
        let policy = AddressPolicy::allowing(vec!["10.1.0.0/16".parse().unwrap()]);
        vet(&policy, found.iter().map(|address| address.parse().unwrap())).map_err(|refused| refused.kind)
    }

    #[test]
    fn refused_addresses_are_dropped_and_all_refused_is_an_error() {
        let public: IpAddr = "8.8.8.8".parse().unwrap();
        let allowed: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(vetted(&["127.0.0.1", "8.8.8.8", "::1", "10.1.2.3"]), Ok(vec![public, allowed]));
        assert_eq!(vetted(&["10.2.0.1", "fe80::1"]), Err("private"));
        assert_eq!(vetted(&[]), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn the_connection_goes_to_the_vetted_address_and_its_port() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = VettedTcp::new(AddressPolicy::allowing(vec!["127.0.0.0/8".parse().unwrap()]), Duration::from_secs(1));
        let address = listener.local_addr().unwrap();
        let stream = tcp.connect(format!("https://{address}/").parse().unwrap()).await.unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), address);
        assert!(stream.inner().nodelay().unwrap());
    }
}
