//! The broker's addresses: one for each node of a cluster, or one for all.

use std::{str::FromStr, time::Duration};

use lapin::uri::{AMQPScheme, AMQPUri};

use crate::error::BrokerError;

const HEARTBEAT_SECONDS: u16 = 10;

const EMPTY_VHOST: &str = "the name of the virtual host after the last / is empty: write /%2F for the virtual host /, which \
     is also the one of an address that ends with its port";

/// At least one address.
pub(crate) struct Addresses {
    uris: Vec<AMQPUri>,
    /// True if any of them holds a password.
    pub(crate) hold_password: bool,
    /// Where this process begins: at random, so that many processes spread over the nodes. Their ids do not differ: in a
    /// container each is 1.
    first: usize,
}

impl Addresses {
    /// Reads a comma separated list. A comma inside an address is not followed by a scheme.
    pub(crate) fn parse(list: &str) -> Result<Self, BrokerError> {
        let mut addresses: Vec<String> = Vec::new();
        for part in list.split(',') {
            match addresses.last_mut() {
                Some(address) if !part.trim().is_empty() && !part.trim_start().starts_with("amqp") => {
                    *address += &format!(",{part}");
                }
                _ => addresses.push(part.trim().to_owned()),
            }
        }
        let read = |address: &String| {
            let mut uri = AMQPUri::from_str(address).map_err(|fault| BrokerError::Uri(fault.to_string()))?;
            if uri.vhost.is_empty() {
                return Err(BrokerError::Uri(EMPTY_VHOST.to_owned()));
            }
            uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
            if let Some(host) = in_brackets(address) {
                uri.authority.host = host.to_owned();
            }
            Ok(uri)
        };
        let uris = addresses.iter().map(read).collect::<Result<_, BrokerError>>()?;
        let hold_password = addresses.iter().any(|address| password_in(address).is_some());
        Ok(Self { uris, hold_password, first: fastrand::usize(..) })
    }

    /// The addresses in the order in which a connection tries them. Publishing and consuming begin at different ones, so
    /// a lost node costs a process one of the two.
    pub(crate) fn in_order(&self, publishes: bool) -> impl Iterator<Item = &AMQPUri> {
        let begin = self.first.wrapping_add(usize::from(publishes)) % self.uris.len();
        self.uris.iter().cycle().skip(begin).take(self.uris.len())
    }

    /// The addresses as they are configured.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AMQPUri> {
        self.uris.iter()
    }

    /// Each address's share of the time for a connection.
    pub(crate) fn share_of(&self, time: Duration) -> Duration {
        time / u32::try_from(self.uris.len()).unwrap_or(u32::MAX)
    }

    /// Whether any of them is reached over TLS.
    pub(crate) fn use_tls(&self) -> bool {
        self.uris.iter().any(|uri| uri.scheme == AMQPScheme::AMQPS)
    }

    /// The hosts other than this machine that are reached without TLS.
    pub(crate) fn in_the_clear(&self) -> Vec<String> {
        let plain = self.uris.iter().filter(|uri| uri.scheme == AMQPScheme::AMQP);
        plain.map(|uri| uri.authority.host.clone()).filter(|host| !tls::is_this_machine(host)).collect()
    }

    /// The hosts other than this machine.
    pub(crate) fn elsewhere(&self) -> Vec<String> {
        self.uris.iter().map(|uri| uri.authority.host.clone()).filter(|host| !tls::is_this_machine(host)).collect()
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.uris.len() > 1
    }
}

/// The host of an address if it is one of IPv6, which lapin takes for `localhost`.
fn in_brackets(address: &str) -> Option<&str> {
    let authority = authority_of(address)?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(host.strip_prefix('[')?.split_once(']')?.0)
}

/// The password of an address, as it is written there. lapin replaces a missing one with `guest`.
fn password_in(address: &str) -> Option<&str> {
    let (user, _) = authority_of(address)?.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

fn authority_of(address: &str) -> Option<&str> {
    address.split_once("://")?.1.split(['/', '?']).next()
}

/// `host:port`, as logs and `webhookctl doctor` name a node.
pub(crate) fn node_of(uri: &AMQPUri) -> String {
    format!("{}:{}", uri.authority.host, uri.authority.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(addresses: &Addresses, publishes: bool) -> Vec<&str> {
        addresses.in_order(publishes).map(|uri| uri.authority.host.as_str()).collect()
    }

    #[test]
    fn publishing_and_consuming_begin_at_different_addresses_and_try_all() {
        let mut addresses = Addresses::parse("amqp://u:p,w@a/v, amqp://b:5673,amqps://c").unwrap();
        assert_eq!(addresses.uris[0].authority.userinfo.password, "p,w");
        addresses.first = 0;
        assert_eq!(hosts(&addresses, false), ["a", "b", "c"]);
        assert_eq!(hosts(&addresses, true), ["b", "c", "a"]);
        addresses.first = usize::MAX;
        assert_eq!(hosts(&addresses, true), ["a", "b", "c"], "it begins anew after the largest number");
        assert_eq!(addresses.share_of(Duration::from_secs(9)), Duration::from_secs(3));

        let one = Addresses::parse("amqp://a").unwrap();
        assert_eq!((hosts(&one, true), hosts(&one, false), one.are_several()), (vec!["a"], vec!["a"], false));
    }

    #[test]
    fn processes_begin_at_different_addresses() {
        let first = || hosts(&Addresses::parse("amqp://a,amqp://b,amqp://c").unwrap(), false)[0].to_owned();
        let firsts: std::collections::BTreeSet<_> = std::iter::repeat_with(first).take(100).collect();
        assert_eq!(firsts.len(), 3, "{firsts:?}");
    }

    #[test]
    fn hosts_without_tls_are_known_and_ipv6_is_not_taken_for_this_machine() {
        let addresses =
            Addresses::parse("amqp://[fd00::1]:5673/v,amqps://u:p@[fd00::2],amqp://localhost,amqp://mq.internal");
        let addresses = addresses.unwrap();
        assert_eq!(addresses.in_the_clear(), ["fd00::1", "mq.internal"]);
        assert_eq!(addresses.elsewhere(), ["fd00::1", "fd00::2", "mq.internal"]);
        assert_eq!((addresses.uris[0].authority.port, addresses.uris[1].authority.host.as_str()), (5673, "fd00::2"));
        assert!(addresses.use_tls());
        let local = Addresses::parse("amqp://127.0.0.1,amqp://[::1]").unwrap();
        assert!(local.in_the_clear().is_empty() && local.elsewhere().is_empty() && !local.use_tls());
    }

    #[test]
    fn a_password_in_any_address_is_noticed() {
        for list in ["amqp://u:p@a", "amqp://a,amqps://u:p%40,w@[fd00::1]/v?heartbeat=5", "amqp://:p@a"] {
            assert!(Addresses::parse(list).unwrap().hold_password, "{list}");
        }
        for list in ["amqp://a:5672/v:x@y", "amqp://u@a:1,amqp://u:@[fd00::1]:2/v?heartbeat=5&x=u:p@b"] {
            assert!(!Addresses::parse(list).unwrap().hold_password, "{list}");
        }
    }

    #[test]
    fn a_faulty_address_among_good_ones_is_a_fault() {
        for list in ["", "amqp://a,", "amqp://a,amqp://b:x", "http://a"] {
            assert!(Addresses::parse(list).is_err(), "{list:?}");
        }
    }

    #[test]
    fn an_empty_virtual_host_is_a_fault_that_says_how_to_write_a_slash() {
        for list in ["amqp://a:5672/", "amqp://a/%2F,amqps://b/?heartbeat=5"] {
            let fault = Addresses::parse(list).err().map(|fault| fault.to_string()).unwrap_or_default();
            assert!(fault.contains("/%2F for the virtual host /"), "{list}: {fault}");
        }
        for (list, vhost) in [("amqp://a", "/"), ("amqp://a:5672", "/"), ("amqp://a/%2f", "/"), ("amqp://a/v", "v")] {
            assert_eq!(Addresses::parse(list).unwrap().uris[0].vhost, vhost, "{list}");
        }
    }
}
