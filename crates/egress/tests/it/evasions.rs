//! Ways around the address policy, each tried all the way to a connection.

use std::net::IpAddr;

use domain::{AddressPolicy, OutcomeClass, ReceiverHeaders, WebhookUrl};
use egress::{EgressConfig, Post};
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    Client, LONG_TIMEOUT, SHORT_TIMEOUT,
    authority::Authority,
    config,
    name_server::{NameServer, Say},
    receiver::Receiver,
};

/// What becomes of a URL, in which `{}` stands for the listener's port.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// No URL to register: the API refuses it with this code, so it can never be called.
    Invalid(&'static str),
    /// An address. It is refused at registration and again at the connection, with this kind.
    Address(&'static str),
    /// A name that always means loopback. Registration refuses it, and the connection reports that it leads nowhere.
    Loopback,
    /// A name that may be registered and leads nowhere.
    Nowhere,
}
use Fate::{Address, Invalid, Loopback, Nowhere};

/// Spellings. Which addresses are public at all is for `domain` to know: its tests have each kind.
const LITERALS: &[(&str, Fate)] = &[
    // IPv4 in the spellings of the URL standard.
    ("https://127.0.0.1:{}/", Address("loopback")),
    ("https://127.0.0.1.:{}/", Address("loopback")),
    ("https://127.1:{}/", Address("loopback")),
    ("https://127.0.1:{}/", Address("loopback")),
    ("https://2130706433:{}/", Address("loopback")),
    ("https://0x7f000001:{}/", Address("loopback")),
    ("https://0X7F.0x0.0X0.0x1:{}/", Address("loopback")),
    ("https://0x7f.1:{}/", Address("loopback")),
    ("https://017700000001:{}/", Address("loopback")),
    ("https://0177.0.0.01:{}/", Address("loopback")),
    ("https://0177.0x0.0.1:{}/", Address("loopback")),
    ("https://0:{}/", Address("this network")),
    ("https://0x0.0:{}/", Address("this network")),
    ("https://0xa.1:{}/", Address("private")),
    ("https://3232235777:{}/", Address("private")),
    ("https://169.254.169.254:{}/latest/meta-data/", Address("link-local")),
    ("https://2852039166:{}/", Address("link-local")),
    ("https://0xA9FEA9FE:{}/", Address("link-local")),
    ("https://0251.0376.0251.0376:{}/", Address("link-local")),
    ("https://4294967295:{}/", Address("reserved")),
    // Text that decodes or maps to an address.
    ("https://127%2E0%2e0%2E1:{}/", Address("loopback")),
    ("https://%31%32%37.0.0.1:{}/", Address("loopback")),
    ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1:{}/", Address("loopback")),
    ("https://127\u{3002}0\u{3002}0\u{3002}1:{}/", Address("loopback")),
    ("https://127\u{ff0e}0\u{ff0e}0\u{ff0e}1:{}/", Address("loopback")),
    ("https://127\u{ff61}0\u{ff61}0\u{ff61}1:{}/", Address("loopback")),
    ("https://\u{2460}\u{2461}\u{2466}.\u{24ea}.\u{24ea}.\u{2460}:{}/", Address("loopback")),
    ("https://1\u{ad}27.0.0.1:{}/", Address("loopback")),
    // IPv6 in every spelling.
    ("https://[::1]:{}/", Address("loopback")),
    ("https://[0:0:0:0:0:0:0:1]:{}/", Address("loopback")),
    ("https://[0000:0000:0000:0000:0000:0000:0000:0001]:{}/", Address("loopback")),
    ("https://[::0.0.0.1]:{}/", Address("loopback")),
    ("https://[FD00:EC2::254]:{}/", Address("unique local")),
    // IPv4 in IPv6, in each of its carriers.
    ("https://[::ffff:127.0.0.1]:{}/", Address("IPv4 mapped into IPv6")),
    ("https://[::FFFF:7F00:1]:{}/", Address("IPv4 mapped into IPv6")),
    ("https://[0:0:0:0:0:ffff:7f00:0001]:{}/", Address("IPv4 mapped into IPv6")),
    ("https://[::127.0.0.1]:{}/", Address("IPv4 in IPv6, compatible")),
    ("https://[::7f00:1]:{}/", Address("IPv4 in IPv6, compatible")),
    ("https://[::ffff:0:127.0.0.1]:{}/", Address("IPv4 translated into IPv6")),
    ("https://[64:ff9b::127.0.0.1]:{}/", Address("loopback")),
    ("https://[64:FF9B::7F00:1]:{}/", Address("loopback")),
    ("https://[64:ff9b::169.254.169.254]:{}/", Address("link-local")),
    ("https://[64:ff9b:1::127.0.0.1]:{}/", Address("IPv4 in IPv6, local NAT64")),
    ("https://[2002:7f00:1::1]:{}/", Address("IPv4 in IPv6, 6to4")),
    ("https://[2001:0:7f00:1::80ff:fffe]:{}/", Address("IPv4 in IPv6, Teredo")),
    ("https://[2606:4700::5efe:127.0.0.1]:{}/", Address("IPv4 in IPv6, ISATAP")),
    ("https://[2606:4700::200:5efe:7f00:1]:{}/", Address("IPv4 in IPv6, ISATAP")),
    // The name that is an address.
    ("https://localhost:{}/", Loopback),
    ("https://LOCALHOST:{}/", Loopback),
    ("https://LocalHost.:{}/", Loopback),
    ("https://a.b.localhost:{}/", Loopback),
    ("https://%6c%6F%63alhost:{}/", Loopback),
    ("https://\u{ff4c}\u{ff4f}\u{ff43}\u{ff41}\u{ff4c}host:{}/", Loopback),
    ("https://local\u{ad}host:{}/", Loopback),
    ("https://local\u{200b}host:{}/", Loopback),
    // URLs in which one host may be read as another.
    ("https://127.0.0.1:{}\\@public.example/", Address("loopback")),
    ("https://127.0.0.1:{}?@public.example/", Address("loopback")),
    ("https://127.0.0.1:{}#@public.example/", Address("loopback")),
    ("https:\\\\127.0.0.1:{}\\", Address("loopback")),
    ("https:////127.0.0.1:{}/", Address("loopback")),
    ("https:127.0.0.1:{}/", Address("loopback")),
    ("https://public.example\\@127.0.0.1:{}/", Nowhere),
    ("https://127.0.0.1.public.example:{}/", Nowhere),
    ("https://public.example@127.0.0.1:{}/", Invalid("credentials_in_url")),
    ("https://public.example:443@127.0.0.1:{}/", Invalid("credentials_in_url")),
    ("https://public.example%2f@127.0.0.1:{}/", Invalid("credentials_in_url")),
    ("http://127.0.0.1:{}/", Invalid("not_https")),
    ("file://127.0.0.1:{}/", Invalid("invalid_url")),
    ("gopher://127.0.0.1:{}/", Invalid("not_https")),
    // Text that is no host at all.
    ("https://[fe80::1%25eth0]:{}/", Invalid("invalid_url")),
    ("https://[::1%lo]:{}/", Invalid("invalid_url")),
    ("https://[::1:{}/", Invalid("invalid_url")),
    ("https://[127.0.0.1]:{}/", Invalid("invalid_url")),
    ("https://[::ffff:127.1]:{}/", Invalid("invalid_url")),
    ("https://[v1.::1]:{}/", Invalid("invalid_url")),
    ("https://127.0.0.256:{}/", Invalid("invalid_url")),
    ("https://1.127.0.0.1:{}/", Invalid("invalid_url")),
    ("https://0x100000000:{}/", Invalid("invalid_url")),
    ("https://127.0.0.08:{}/", Invalid("invalid_url")),
    ("https://public.example%00.127.0.0.1:{}/", Invalid("invalid_url")),
    ("https://127.0.0.1%0d%0aHost:x:{}/", Invalid("invalid_url")),
    ("https://local\thost:{}/", Invalid("invalid_url")),
    ("https://127.0.\n0.1:{}/", Invalid("invalid_url")),
    (" https://127.0.0.1:{}/", Invalid("invalid_url")),
];

/// A name, the name server's addresses for it, and their kind. None leads to a connection.
const NAMES: &[(&str, &[&str], &str)] = &[
    ("loopback", &["127.0.0.1"], "loopback"),
    ("private", &["10.1.2.3"], "private"),
    ("metadata", &["169.254.169.254"], "link-local"),
    ("broadcast", &["255.255.255.255"], "reserved"),
    ("loopback-6", &["::1"], "loopback"),
    ("mapped", &["::ffff:127.0.0.1"], "IPv4 mapped into IPv6"),
    ("compatible", &["::127.0.0.1"], "IPv4 in IPv6, compatible"),
    ("nat64", &["64:ff9b::7f00:1"], "loopback"),
    ("six-to-four", &["2002:7f00:1::"], "IPv4 in IPv6, 6to4"),
    ("unique-local", &["fd00::1"], "unique local"),
    ("both-families", &["127.0.0.1", "::1"], "loopback"),
    ("many-kinds", &["10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00::1", "::1"], "private"),
];

/// Counts connections to every loopback address, of both families where there are two.
async fn loopback() -> Receiver {
    Receiver::tcp(|_, _| async {}).await
}

/// A client with the default policy at the connection.
fn strict(name_server: &NameServer) -> Client {
    let name_servers = vec![name_server.address()];
    Client::new(EgressConfig {
        address_policy: AddressPolicy::default(),
        name_servers,
        ..config(&Authority::new(), LONG_TIMEOUT)
    })
}

/// A POST to a URL that was registered under a policy that refuses nothing.
fn post(url: &str) -> Post {
    let anywhere = AddressPolicy::allowing(vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]);
    let url = WebhookUrl::parse(url, 2048, &anywhere).unwrap_or_else(|violation| panic!("{url:?} {violation}"));
    Post { url, headers: Vec::new(), receiver_headers: ReceiverHeaders::default(), body: "{}".into() }
}

/// Checks that nobody connected: a connection that the test makes now is the first of all.
async fn nobody_came(listener: &Receiver) {
    assert_eq!(listener.accepted(), 0);
    TcpStream::connect(listener.address).await.unwrap();
    listener.first_connection().await;
    assert_eq!(listener.accepted(), 1, "a connection came late");
}

fn code(url: &str) -> Result<WebhookUrl, &'static str> {
    WebhookUrl::parse(url, 2048, &AddressPolicy::default()).map_err(|violation| violation.code())
}

#[tokio::test]
async fn no_spelling_of_a_private_address_is_connected_to() {
    let (listener, name_server) = (loopback().await, NameServer::start(|_, _| Say::NoSuchName).await);
    let egress = strict(&name_server);
    assert!(LITERALS.len() >= 60);
    for (pattern, fate) in LITERALS {
        let url = pattern.replace("{}", &listener.address.port().to_string());
        match fate {
            Invalid(expected) => assert_eq!(code(&url), Err(*expected), "{url:?}"),
            Address(kind) => {
                assert_eq!(code(&url), Err("refused_address"), "{url:?}");
                let answer = egress.post(post(&url)).await;
                let error = answer.error.unwrap_or_default();
                assert_eq!(answer.class, OutcomeClass::RefusedAddress, "{url:?}: {error}");
                assert!(error.ends_with(&format!("is not a public address ({kind})")), "{url:?}: {error}");
            }
            Loopback => {
                assert_eq!(code(&url), Err("refused_address"), "{url:?}");
                assert_eq!(egress.post(post(&url)).await.class, OutcomeClass::Dns, "{url:?}");
            }
            Nowhere => {
                assert!(code(&url).is_ok(), "{url:?}");
                assert_eq!(egress.post(post(&url)).await.class, OutcomeClass::Dns, "{url:?}");
            }
        }
        assert_eq!(listener.accepted(), 0, "{url:?} was connected to");
    }
    nobody_came(&listener).await;
    assert_eq!(name_server.names(), ["127.0.0.1.public.example", "public.example"], "an address is not looked up");
}

#[tokio::test]
async fn no_name_leads_to_a_private_address() {
    let say = |name: &str| {
        let (_, addresses, _) = NAMES.iter().find(|row| row.0 == name)?;
        Some(addresses.iter().map(|address| address.parse::<IpAddr>().unwrap()).collect::<Vec<_>>())
    };
    let name_server = NameServer::start(move |name, _| {
        let (label, domain) = name.split_once('.').unwrap_or((name, ""));
        match (say(label), domain) {
            (Some(addresses), "test.example") => Say::Addresses(addresses),
            (Some(addresses), "truncated.example") => Say::Truncated(addresses),
            (Some(addresses), "alias.example") => Say::Alias("public.example".to_owned(), addresses),
            (Some(_), "chain.example") => Say::Referral(format!("{label}.link.example")),
            (Some(_), "link.example") => Say::Referral(format!("{label}.test.example")),
            _ => Say::NoSuchName,
        }
    })
    .await;
    let (listener, egress) = (loopback().await, strict(&name_server));
    for (name, _, kind) in NAMES {
        for domain in ["test.example", "TEST.Example.", "truncated.example", "alias.example", "chain.example"] {
            let url = format!("https://{name}.{domain}:{}/", listener.address.port());
            assert!(code(&url).is_ok(), "{url}");
            let answer = egress.post(post(&url)).await;
            let error = answer.error.unwrap_or_default();
            assert_eq!(answer.class, OutcomeClass::Dns, "{url}: {error}");
            let host = format!("{name}.{}", domain.to_lowercase());
            let missing = format!("the host name {host:?} does not resolve to a public address");
            assert_eq!(error, missing, "{kind}: told like a name that there is not");
            assert_eq!(listener.accepted(), 0, "{url} was connected to");
        }
    }
    nobody_came(&listener).await;
}

#[tokio::test]
async fn names_that_lead_nowhere_are_told_apart_within_half_of_the_deadline() {
    let name_server = NameServer::start(|name, _| match name {
        "private.example" => Say::Addresses(vec![[10, 0, 0, 1].into()]),
        "empty.example" => Say::Addresses(Vec::new()),
        "broken.example" => Say::Failure,
        "silent.example" => Say::Silence,
        "loop.example" => Say::Referral("pool.example".to_owned()),
        "pool.example" => Say::Referral("loop.example".to_owned()),
        _ => Say::NoSuchName,
    })
    .await;
    let name_servers = vec![name_server.address()];
    let address_policy = AddressPolicy::default();
    let egress = Client::new(EgressConfig { name_servers, address_policy, ..config(&Authority::new(), SHORT_TIMEOUT) });
    for (name, reason) in [
        ("missing.example", " to a public address"),
        ("empty.example", " to a public address"),
        ("private.example", " to a public address"),
        ("broken.example", ": its name servers fail"),
        ("loop.example", " to a public address"),
        ("silent.example", ": no name server answered in time"),
    ] {
        let answer = egress.post(post(&format!("https://{name}/"))).await;
        let expected = format!("the host name \"{name}\" does not resolve{reason}");
        assert_eq!((answer.class, answer.error), (OutcomeClass::Dns, Some(expected)));
        assert!(name != "silent.example" || answer.elapsed >= SHORT_TIMEOUT / 2, "{:?}", answer.elapsed);
    }
}

#[tokio::test]
async fn a_thousand_lookups_that_hang_do_not_hold_up_another() {
    let say = |name: &str, _| if name == "fast.example" { Say::NoSuchName } else { Say::Silence };
    let (name_server, names) = (NameServer::start(say).await, 50);
    let egress = strict(&name_server);
    let mut hanging = JoinSet::new();
    for number in 0..1000 {
        let (egress, post) = (egress.0.clone(), post(&format!("https://silent-{}.example/", number % names)));
        hanging.spawn(async move { egress.post(post).await });
    }
    while name_server.names().len() < names {
        tokio::task::yield_now().await;
    }
    let answer = egress.post(post("https://fast.example/")).await;
    assert_eq!(answer.error.unwrap(), "the host name \"fast.example\" does not resolve to a public address");
    assert!(hanging.try_join_next().is_none(), "they hang no more");
}
