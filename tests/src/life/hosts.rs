//! Where the tenant's receivers are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use crate::{
    name_server::{NameServer, Say},
    receiver::{Behaviour, Receiver, TestCa},
};

/// The names of receivers, in the order of their addresses.
const NAMES: [&str; 5] = ["crm", "warehouse", "erp", "reporting", "office"];

/// The receivers' hosts: names of `localhost`, or, for pictures, names below `example.com` that only the service knows.
pub struct Hosts {
    server: Option<NameServer>,
    net: [u8; 2],
}

impl Hosts {
    /// Every receiver is `localhost`. The service resolves all other names as usual.
    #[must_use]
    pub const fn local() -> Self {
        Self { server: None, net: [0, 0] }
    }

    /// Every receiver has a name and an address of its own. The service knows no other names.
    pub async fn named() -> Self {
        let net = [fastrand::u8(1..255), fastrand::u8(1..255)];
        let server = NameServer::start(move |name, _| {
            let place = NAMES.iter().position(|host| name == format!("{host}.example.com"));
            place.map_or(Say::NoSuchName, |place| Say::Addresses(vec![address(net, place)]))
        });
        Self { server: Some(server.await), net }
    }

    /// The value of `egress.name_servers`, if it is needed.
    pub(super) fn name_servers(&self) -> Option<String> {
        self.server.as_ref().map(|server| server.address().to_string())
    }

    /// Starts a receiver: at the port of HTTPS where that is allowed, else at a free one.
    pub(super) fn receiver(&self, ca: &TestCa, host: &str, behaviour: Behaviour) -> Receiver {
        if self.server.is_none() {
            return Receiver::start(ca, behaviour);
        }
        let place = NAMES.iter().position(|name| *name == host).expect("it is one of the hosts");
        let own = SocketAddr::new(address(self.net, place), 443);
        let port = if TcpListener::bind(own).is_ok() { 443 } else { 0 };
        Receiver::start_on(SocketAddr::new(own.ip(), port), ca, behaviour)
    }

    /// The URL of a path at a receiver.
    pub(super) fn url(&self, host: &str, receiver: &Receiver, path: &str) -> String {
        match (&self.server, receiver.addr().port()) {
            (None, _) => receiver.url(path),
            (Some(_), 443) => format!("https://{host}.example.com/{path}"),
            (Some(_), port) => format!("https://{host}.example.com:{port}/{path}"),
        }
    }
}

fn address([a, b]: [u8; 2], place: usize) -> IpAddr {
    Ipv4Addr::new(127, a, b, 1 + u8::try_from(place).unwrap_or_default()).into()
}
