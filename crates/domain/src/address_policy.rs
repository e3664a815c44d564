//! The address policy: the addresses, ports and hosts that deliveries may go to (crates/README.md, outbound requests).

use std::{net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;
use url::Host;

use crate::address::{Networks, RefusedAddress};

/// The addresses, ports and hosts that deliveries may go to. The default is every port
/// of every host with a globally reachable address.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    networks: Networks,
    ports: Ports,
    denied: HostSuffixes,
}

/// The ports that deliveries may go to; an empty list allows any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

/// Hosts that deliveries may not go to, with everything below them: lower-case names, without dots at their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSuffixes(Vec<String>);

/// The operator does not allow this host.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{host:?} is denied: {}", self.why())]
pub struct RefusedHost {
    /// The host.
    pub host: String,
}

/// The operator does not allow this port.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("port {port} is denied: {}", self.why())]
pub struct RefusedPort {
    /// The port.
    pub port: u16,
}

/// A bad entry of a list.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressPolicyError {
    /// Neither a port nor a range of ports.
    #[error("{0:?} is neither a port from 1 to 65535 nor a range of them, as in 10000-20000")]
    Port(String),
    /// Not a host name.
    #[error("{0:?} is not a host name, as in internal.example")]
    Host(String),
}

impl RefusedHost {
    /// The reason, in words for the webhook's administrator.
    pub const fn why(&self) -> &'static str {
        "deliveries to this host are not allowed"
    }
}

impl RefusedPort {
    /// The reason, in words for the webhook's administrator.
    pub const fn why(&self) -> &'static str {
        "deliveries to this port are not allowed"
    }
}

impl AddressPolicy {
    /// Allows the given networks in addition to the public addresses.
    pub const fn allowing(networks: Vec<IpNet>) -> Self {
        Self {
            networks: Networks { denied: Vec::new(), allowed: networks },
            ports: Ports(Vec::new()),
            denied: HostSuffixes(Vec::new()),
        }
    }

    /// Denies every address of these networks, also one that is allowed.
    #[must_use]
    pub fn without_networks(self, denied: Vec<IpNet>) -> Self {
        Self { networks: Networks { denied, ..self.networks }, ..self }
    }

    /// The same, but only to these ports.
    #[must_use]
    pub fn with_ports(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }

    /// The same, but not to these hosts.
    #[must_use]
    pub fn without_hosts(self, denied: HostSuffixes) -> Self {
        Self { denied, ..self }
    }

    /// Whether a delivery may be sent to the address.
    ///
    /// # Errors
    /// [`RefusedAddress`], with the reason.
    pub fn check_address(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        self.networks.check(address)
    }

    /// Returns whether an address is public: a delivery may be sent to it without any allowed network.
    pub fn is_public(address: IpAddr) -> bool {
        Networks::default().check(address).is_ok()
    }

    /// Whether a delivery may be sent to the port.
    ///
    /// # Errors
    /// [`RefusedPort`].
    pub fn check_port(&self, port: u16) -> Result<(), RefusedPort> {
        let allowed = self.ports.0.is_empty() || self.ports.0.iter().any(|range| range.contains(&port));
        if allowed { Ok(()) } else { Err(RefusedPort { port }) }
    }

    /// Whether a delivery may be sent to the host of this name, whatever address it has.
    ///
    /// # Errors
    /// [`RefusedHost`].
    pub fn check_host(&self, host: &str) -> Result<(), RefusedHost> {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let is_below = |suffix: &String| {
            name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if self.denied.0.iter().any(is_below) { Err(RefusedHost { host: host.to_owned() }) } else { Ok(()) }
    }
}

/// The entries of a comma separated list; the empty text has none.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    let empty = text.trim().is_empty();
    text.split(',').map(str::trim).filter(move |_| !empty)
}

impl FromStr for Ports {
    type Err = AddressPolicyError;

    /// Comma separated ports and ranges, as in `443,10000-20000`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
        let range = |entry: &str| {
            let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
            let range = port(first)?..=port(last)?;
            (!range.is_empty()).then_some(range)
        };
        let range = |entry| range(entry).ok_or_else(|| AddressPolicyError::Port(entry.to_owned()));
        entries(text).map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for HostSuffixes {
    type Err = AddressPolicyError;

    /// Comma separated names in any case, which may begin or end with a dot.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = |entry: &str| {
            let bare = entry.strip_prefix('.').unwrap_or(entry);
            match Host::parse(bare.strip_suffix('.').unwrap_or(bare)) {
                Ok(Host::Domain(name)) if !name.split('.').any(|label| label.is_empty() || label == "*") => Ok(name),
                _ => Err(AddressPolicyError::Host(entry.to_owned())),
            }
        };
        entries(text).map(name).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_only_an_allowed_network_opens_is_not_public() {
        for (address, is_public) in [("192.0.1.1", true), ("10.0.0.1", false)] {
            assert_eq!(AddressPolicy::is_public(address.parse().unwrap()), is_public, "{address}");
        }
    }

    #[test]
    fn a_port_is_allowed_if_it_is_listed_or_lies_in_a_range() {
        let ports = |text: &str| AddressPolicy::default().with_ports(text.parse().unwrap());
        assert!(ports("").check_port(1).is_ok());
        let some = ports("443, 8443,10000-20000");
        for (port, allowed) in
            [(443, true), (444, false), (8443, true), (10_000, true), (20_000, true), (20_001, false)]
        {
            assert_eq!(some.check_port(port).is_ok(), allowed, "{port}");
        }
        for bad in ["0", "443,", ",", "https", "65536", "20-10", "1-", "-1", "1-2-3", "443;8443"] {
            assert!(Ports::from_str(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_is_denied_with_everything_below_it_and_nothing_beside_it() {
        let denying = |text: &str| AddressPolicy::default().without_hosts(text.parse().unwrap());
        assert!(denying("").check_host("internal.example").is_ok());
        for suffixes in ["internal.example", ".INTERNAL.example.", "other.example, internal.example"] {
            let address_policy = denying(suffixes);
            for host in ["internal.example", "a.internal.example", "A.B.Internal.Example.", "internal.example.."] {
                assert!(address_policy.check_host(host).is_err(), "{suffixes}: {host}");
            }
            for host in ["xinternal.example", "internal.example.org", "example", "nal.example", ""] {
                assert!(address_policy.check_host(host).is_ok(), "{suffixes}: {host}");
            }
        }
        assert!(denying("b\u{fc}cher.example").check_host("a.xn--bcher-kva.example").is_err());
        for bad in [",", ".", "a b", "*.internal.example", "a..b", "10.0.0.1", "[::1]", "https://a.example", "a/b"] {
            assert!(HostSuffixes::from_str(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_allowed_network_is_open_beside_the_public_addresses() {
        let address_policy = AddressPolicy::allowing(vec!["10.0.0.0/8".parse().unwrap()]);
        for (address, allowed) in [("10.1.2.3", true), ("8.8.8.8", true), ("192.168.1.1", false)] {
            assert_eq!(address_policy.check_address(address.parse().unwrap()).is_ok(), allowed, "{address}");
        }
    }
}
