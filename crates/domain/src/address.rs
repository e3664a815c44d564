//! Which addresses a delivery may be sent to (crates/README.md, outbound requests).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Refuses every address in a network that the operator denies, and every address that is not globally reachable, unless it
/// is in a network that the operator allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    pub(crate) denied: Vec<IpNet>,
    pub(crate) allowed: Vec<IpNet>,
}

/// The egress policy refuses this address.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{address} is {fault}")]
pub struct RefusedAddress {
    /// The address.
    pub address: IpAddr,
    /// The reason.
    pub fault: AddressFault,
}

/// The reason why an address is refused, in words for the webhook's administrator.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressFault {
    /// In a network that the operator denies.
    #[error("denied: deliveries to this address are not allowed")]
    Denied,
    /// Not globally reachable, with the kind of address.
    #[error("not a public address ({0})")]
    NotPublic(&'static str),
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const REFUSED_V4: [(Ipv4Net, &str); 15] = [
    (v4(0, 0, 0, 0, 8), "this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared by carrier-grade NAT"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "protocol assignments"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// The first match counts. Any other address outside of `2000::/3` is reserved.
const REFUSED_V6: [(Ipv6Net, &str); 16] = [
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), "unspecified"),
    (Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96), "IPv4 mapped into IPv6"),
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96), "IPv4 in IPv6, compatible"),
    (Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96), "IPv4 translated into IPv6"),
    (v6(0x64, 0xff9b, 1, 48), "IPv4 in IPv6, local NAT64"),
    (v6(0x100, 0, 0, 64), "discard"),
    (v6(0x2001, 0, 0, 32), "IPv4 in IPv6, Teredo"),
    (v6(0x2001, 0, 0, 23), "protocol assignments"),
    (v6(0x2001, 0xdb8, 0, 32), "documentation"),
    (v6(0x2002, 0, 0, 16), "IPv4 in IPv6, 6to4"),
    (v6(0x3fff, 0, 0, 20), "documentation"),
    (v6(0xfc00, 0, 0, 7), "unique local"),
    (v6(0xfe80, 0, 0, 10), "link-local"),
    (v6(0xfec0, 0, 0, 10), "site-local"),
    (v6(0xff00, 0, 0, 8), "multicast"),
];

const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// IPv4 addresses behind the NAT64 gateways of IPv6-only networks (RFC 6052).
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// The IPv4 address that a NAT64 gateway connects to, or else the address itself.
fn behind_nat64(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if NAT64.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        _ => address,
    }
}

/// Whether it is an ISATAP address (RFC 5214): a tunnel to the IPv4 address in its lower half, below any prefix.
const fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    matches!((segments[4], segments[5]), (0 | 0x200, 0x5efe))
}

impl Networks {
    /// Checks if a delivery may be sent to the address. That of a NAT64 gateway is judged by the IPv4 address in it,
    /// also by the allowed networks: a network that contains the gateway opens nothing private behind it. A denied network
    /// closes its addresses in every form: behind a gateway, and mapped into IPv6.
    ///
    /// # Errors
    /// [`RefusedAddress`], with the reason.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let judged = behind_nat64(address);
        let forms = [address, judged, address.to_canonical()];
        if self.denied.iter().any(|network| forms.iter().any(|form| network.contains(form))) {
            return Err(RefusedAddress { address, fault: AddressFault::Denied });
        }
        if self.allowed.iter().any(|network| network.contains(&judged)) {
            return Ok(());
        }
        let kind = match judged {
            IpAddr::V4(v4) => REFUSED_V4.iter().find(|(network, _)| network.contains(&v4)).map(|(_, kind)| *kind),
            IpAddr::V6(v6) => {
                let named = REFUSED_V6.iter().find(|(network, _)| network.contains(&v6)).map(|(_, kind)| *kind);
                let named = named.or(is_isatap(v6).then_some("IPv4 in IPv6, ISATAP"));
                named.or((!GLOBAL_V6.contains(&v6)).then_some("reserved"))
            }
        };
        let fault = kind.map(AddressFault::NotPublic);
        fault.map_or(Ok(()), |fault| Err(RefusedAddress { address, fault }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(denied: &[&str], allowed: &[&str]) -> Networks {
        let [denied, allowed] =
            [denied, allowed].map(|networks| networks.iter().map(|one| one.parse().unwrap()).collect());
        Networks { denied, allowed }
    }

    fn kind(policy: &Networks, address: &str) -> Option<&'static str> {
        policy.check(address.parse().unwrap()).err().map(|refused| match refused.fault {
            AddressFault::Denied => "denied",
            AddressFault::NotPublic(kind) => kind,
        })
    }

    #[test]
    fn what_is_not_globally_reachable_is_refused() {
        let policy = Networks::default();
        for (address, expected) in [
            ("0.0.0.0", "this network"),
            ("10.1.2.3", "private"),
            ("100.64.0.1", "shared by carrier-grade NAT"),
            ("100.127.255.255", "shared by carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.255", "loopback"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "protocol assignments"),
            ("192.0.0.192", "protocol assignments"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.0.1", "benchmarking"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:8.8.8.8", "IPv4 mapped into IPv6"),
            ("::127.0.0.1", "IPv4 in IPv6, compatible"),
            ("::ffff:0:127.0.0.1", "IPv4 translated into IPv6"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::10.1.2.3", "private"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:0:0:0:1:808:808", "reserved"),
            ("64:ff9b:1::1", "IPv4 in IPv6, local NAT64"),
            ("100::1", "discard"),
            ("2001::1", "IPv4 in IPv6, Teredo"),
            ("2001:10::1", "protocol assignments"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "IPv4 in IPv6, 6to4"),
            ("3fff::1", "documentation"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("5f00::1", "reserved"),
            ("4000::1", "reserved"),
            ("2606:4700::5efe:127.0.0.1", "IPv4 in IPv6, ISATAP"),
            ("2606:4700::200:5efe:10.0.0.1", "IPv4 in IPv6, ISATAP"),
        ] {
            assert_eq!(kind(&policy, address), Some(expected), "{address}");
        }
    }

    #[test]
    fn public_addresses_and_allowed_networks_pass() {
        let policy = networks(&[], &["127.0.0.0/8", "::1/128"]);
        for address in
            ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "127.0.0.1", "127.9.9.9", "::1"]
        {
            assert_eq!(kind(&policy, address), None, "{address}");
        }
        assert_eq!(kind(&policy, "10.0.0.1"), Some("private"));
        assert_eq!(kind(&policy, "::ffff:127.0.0.1"), Some("IPv4 mapped into IPv6"), "an exception is not stretched");
    }

    #[test]
    fn a_nat64_address_is_judged_by_the_ipv4_address_in_it() {
        let policy = networks(&[], &["64:ff9b::/32", "10.1.0.0/16"]);
        for (address, expected) in [
            ("64:ff9b::8.8.8.8", None),
            ("64:ff9b::10.1.2.3", None),
            ("64:ff9b::10.2.0.1", Some("private")),
            ("64:ff9b::127.0.0.1", Some("loopback")),
            ("64:ff9b:1::10.2.0.1", None),
        ] {
            assert_eq!(kind(&policy, address), expected, "{address}");
        }
        assert_eq!(kind(&Networks::default(), "64:ff9b::8.8.8.8"), None);
    }

    #[test]
    fn a_denied_network_is_closed_in_every_form_whatever_is_allowed() {
        let denied = ["8.8.8.0/24", "10.1.0.0/16", "2606:4700::/32", "64:ff9b::9.9.9.0/120"];
        let policy = networks(&denied, &["10.0.0.0/8", "::ffff:0:0/96", "2606::/16", "64:ff9b::/96"]);
        for address in [
            "8.8.8.8",
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
            "10.1.2.3",
            "64:ff9b::10.1.2.3",
            "::ffff:10.1.2.3",
            "2606:4700::1111",
            "64:ff9b::9.9.9.9",
        ] {
            assert_eq!(kind(&policy, address), Some("denied"), "{address}");
        }
        for address in ["8.8.9.8", "10.2.0.1", "64:ff9b::10.2.0.1", "::ffff:10.2.0.1", "2606:4701::1", "9.9.9.9"] {
            assert_eq!(kind(&policy, address), None, "{address}");
        }
        let refused = policy.check("8.8.8.8".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(refused, "8.8.8.8 is denied: deliveries to this address are not allowed");
    }
}
