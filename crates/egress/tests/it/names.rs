//! Names are resolved once per connection, checked every time, and remembered briefly.

use std::net::IpAddr;

use domain::{
    AddressPolicy,
    OutcomeClass::{self, Connect, RefusedAddress, Success},
    PostResult,
};
use egress::EgressConfig;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    Client, LONG_TIMEOUT, SHORT_TIMEOUT,
    authority::Authority,
    config,
    name_server::{NameServer, Say},
    receiver::Receiver,
};

const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Stands for a public address. The rest of loopback is refused.
const PUBLIC_ADDRESS: &str = "127.0.0.2";

fn ips(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

fn only_public(authority: &Authority, name_server: &NameServer) -> EgressConfig {
    let address_policy = AddressPolicy::allowing(vec![format!("{PUBLIC_ADDRESS}/32").parse().unwrap()]);
    EgressConfig { address_policy, name_servers: vec![name_server.address()], ..config(authority, LONG_TIMEOUT) }
}

/// A receiver for these names, and the addresses at which it was called.
async fn receiver(authority: &Authority, names: &[&str]) -> (Receiver, mpsc::UnboundedReceiver<IpAddr>) {
    let (called, calls) = mpsc::unbounded_channel();
    let receiver = Receiver::tls(authority.acceptor(names), move |mut peer| {
        let _ = called.send(peer.stream.get_ref().0.local_addr().unwrap().ip().to_canonical());
        async move {
            peer.request().await;
            peer.send(OK_RESPONSE).await;
        }
    })
    .await;
    (receiver, calls)
}

async fn answer(egress: &Client, receiver: &Receiver, name: &str) -> PostResult {
    egress.post(crate::post(&format!("https://{name}:{}/", receiver.address.port()))).await
}

async fn ask(egress: &Client, receiver: &Receiver, name: &str) -> OutcomeClass {
    answer(egress, receiver, name).await.class
}

fn all(mut calls: mpsc::UnboundedReceiver<IpAddr>) -> Vec<IpAddr> {
    std::iter::from_fn(|| calls.try_recv().ok()).collect()
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_public_part_is_connected_to() {
    let names = ["private-first.example", "private-last.example", "crowd.example", "alias.example", "long.example"];
    let authority = Authority::new();
    let name_server = NameServer::start(|name, _| match name {
        "private-first.example" => Say::Addresses(ips(&["127.0.0.1", "10.0.0.1", PUBLIC_ADDRESS, "::1"])),
        "private-last.example" => Say::Addresses(ips(&[PUBLIC_ADDRESS, "127.0.0.1", "::1", "::ffff:127.0.0.2"])),
        "crowd.example" => Say::Addresses(
            [vec!["127.0.0.1"; 15], vec![PUBLIC_ADDRESS; 20]].concat().iter().map(|a| a.parse().unwrap()).collect(),
        ),
        "alias.example" => Say::Alias("elsewhere.example".to_owned(), ips(&["127.0.0.1", PUBLIC_ADDRESS])),
        _ => Say::Truncated(vec![PUBLIC_ADDRESS.parse().unwrap(); 200]),
    })
    .await;
    let (receiver, calls) = receiver(&authority, &names).await;
    let egress = Client::new(only_public(&authority, &name_server));
    for name in names {
        assert_eq!(ask(&egress, &receiver, name).await, Success, "{name}");
    }
    assert_eq!(all(calls), vec![PUBLIC_ADDRESS.parse::<IpAddr>().unwrap(); names.len()]);
}

#[tokio::test]
async fn names_that_are_no_host_names_but_are_in_use_are_called() {
    let names = ["my_hooks.example", "_hooks.a--b.example", "1.2.example", "x"];
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Addresses(ips(&[PUBLIC_ADDRESS]))).await;
    let (receiver, calls) = receiver(&authority, &names).await;
    let egress = Client::new(only_public(&authority, &name_server));
    for name in names {
        let answer = answer(&egress, &receiver, name).await;
        assert_eq!((answer.class, answer.error), (Success, None), "{name}");
    }
    assert_eq!(all(calls).len(), names.len());
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_the_second_time_is_checked_the_second_time() {
    let authority = Authority::new();
    for (name, lasts, refused_from) in [("forgotten.example", 0, 1), ("remembered.example", 1, 2)] {
        let name_server = NameServer::start(move |_, before| match before {
            0 => Say::Lasting(lasts, ips(&[PUBLIC_ADDRESS])),
            _ => Say::Addresses(ips(&["127.0.0.1"])),
        })
        .await;
        let (receiver, calls) = receiver(&authority, &[name]).await;
        let egress = Client::new(only_public(&authority, &name_server));
        let mut outcomes = vec![ask(&egress, &receiver, name).await, ask(&egress, &receiver, name).await];
        while outcomes.last() == Some(&Success) {
            outcomes.push(ask(&egress, &receiver, name).await);
        }
        assert!(outcomes.len() > refused_from, "{outcomes:?}");
        assert_eq!(outcomes.pop(), Some(OutcomeClass::Dns));
        assert_eq!(
            all(calls),
            vec![PUBLIC_ADDRESS.parse::<IpAddr>().unwrap(); outcomes.len()],
            "the allowed address and no other"
        );
        assert_eq!(name_server.asked(name), 2, "{name}");
    }
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_each_connection_and_never_below_another_domain() {
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Addresses(ips(&[PUBLIC_ADDRESS]))).await;
    let (receiver, calls) = receiver(&authority, &["internal"]).await;
    let egress = Client::new(only_public(&authority, &name_server));
    for name in ["internal", "internal.", "INTERNAL"] {
        assert_eq!(ask(&egress, &receiver, name).await, Success, "{name}");
    }
    assert_eq!((name_server.asked("internal"), name_server.names()), (3, vec!["internal".to_owned()]));
    assert_eq!(all(calls).len(), 3);
}

#[tokio::test]
async fn a_lasting_answer_serves_many_connections() {
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Lasting(3600, ips(&[PUBLIC_ADDRESS]))).await;
    let (receiver, _calls) = receiver(&authority, &["a.example"]).await;
    let egress = Client::new(only_public(&authority, &name_server));
    assert_eq!(ask(&egress, &receiver, "a.example").await, Success);
    let url = format!("https://a.example:{}/", receiver.address.port());
    let mut posts = JoinSet::new();
    for _ in 0..30 {
        let (egress, post) = (egress.0.clone(), crate::post(&url));
        posts.spawn(async move { egress.post(post).await.unwrap().class });
    }
    assert_eq!(posts.join_all().await, [Success; 30]);
    assert!(name_server.asked("a.example") < 10, "{} questions", name_server.asked("a.example"));
}

#[tokio::test]
async fn a_name_server_that_is_silent_about_ipv6_or_knows_nothing_of_edns_holds_up_nothing() {
    let authority = Authority::new();
    for say in [|| Say::SilentAboutIpv6(ips(&[PUBLIC_ADDRESS])), || Say::OnlyWithoutEdns(ips(&[PUBLIC_ADDRESS]))] {
        let name_server = NameServer::start(move |_, _| say()).await;
        let (receiver, _calls) = receiver(&authority, &["a.example"]).await;
        let egress = Client::new(only_public(&authority, &name_server));
        let answer = answer(&egress, &receiver, "a.example").await;
        assert_eq!((answer.class, answer.error), (Success, None));
        assert!(answer.elapsed < LONG_TIMEOUT / 2, "{:?}", answer.elapsed);
    }
}

#[tokio::test]
async fn name_servers_that_are_silent_or_fail_cost_nothing_beside_a_good_one() {
    let authority = Authority::new();
    let good = NameServer::start(|_, _| Say::Addresses(ips(&[PUBLIC_ADDRESS]))).await;
    let (receiver, _calls) = receiver(&authority, &["a.example"]).await;
    for say in [|| Say::Silence, || Say::Failure] {
        let mut bad = Vec::new();
        for _ in 0..5 {
            bad.push(NameServer::start(move |_, _| say()).await);
        }
        let name_servers = bad.iter().chain([&good]).map(NameServer::address).collect();
        let egress = Client::new(EgressConfig { name_servers, ..only_public(&authority, &good) });
        for _ in 0..3 {
            assert_eq!(ask(&egress, &receiver, "a.example").await, Success);
        }
    }
}

#[tokio::test]
async fn an_address_that_refuses_does_not_keep_the_next_from_being_tried() {
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Addresses(ips(&["127.0.0.3", PUBLIC_ADDRESS]))).await;
    let listener = tokio::net::TcpListener::bind((PUBLIC_ADDRESS, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let egress =
        Client::new(EgressConfig { name_servers: vec![name_server.address()], ..config(&authority, LONG_TIMEOUT) });
    let post = crate::post(&format!("https://a.example:{port}/"));
    // The order varies: one of these posts begins at the address that refuses.
    for _ in 0..20 {
        let (answer, accepted) = tokio::join!(egress.post(post.clone()), async {
            let (stream, _) = listener.accept().await.unwrap();
            stream.local_addr().unwrap().ip()
        });
        assert_eq!((answer.class, accepted.to_string().as_str()), (OutcomeClass::Tls, PUBLIC_ADDRESS));
    }
    drop(listener);
    let alone = egress.post(crate::post(&format!("https://{PUBLIC_ADDRESS}:{port}/"))).await;
    assert_eq!((alone.class, alone.error), (Connect, Some(format!("connection refused by {PUBLIC_ADDRESS}:{port}"))));
    let answer = egress.post(post).await;
    let messages = ["127.0.0.3", PUBLIC_ADDRESS]
        .map(|last| Some(format!("connection refused by {last}:{port} (and 1 other addresses)")));
    assert!(answer.class == Connect && messages.contains(&answer.error), "{:?}", answer.error);
}

#[tokio::test]
async fn an_address_that_accepts_and_never_answers_is_not_met_by_every_post() {
    let authority = Authority::new();
    let hangs = "127.0.0.3";
    let name_server = NameServer::start(move |_, _| Say::Addresses(ips(&[hangs, PUBLIC_ADDRESS]))).await;
    let receiver = Receiver::tls(authority.acceptor(&["a.example"]), move |mut peer| async move {
        let address = peer.stream.get_ref().0.local_addr().unwrap().ip().to_canonical();
        peer.request().await;
        if address.to_string() == hangs {
            peer.gone().await;
        } else {
            peer.send(OK_RESPONSE).await;
        }
    })
    .await;
    let egress =
        Client::new(EgressConfig { name_servers: vec![name_server.address()], ..config(&authority, SHORT_TIMEOUT) });
    let url = format!("https://a.example:{}/", receiver.address.port());
    let mut posts = JoinSet::new();
    for _ in 0..20 {
        let (egress, post) = (egress.0.clone(), crate::post(&url));
        posts.spawn(async move { egress.post(post).await.unwrap().class });
    }
    let outcomes = posts.join_all().await;
    let number = |class| outcomes.iter().filter(|outcome| **outcome == class).count();
    assert_eq!(number(Success) + number(OutcomeClass::Timeout), 20, "{outcomes:?}");
    assert!(number(Success) > 0 && number(OutcomeClass::Timeout) > 0, "each address is met: {outcomes:?}");
}

#[tokio::test]
async fn denied_hosts_and_ports_are_neither_looked_up_nor_connected_to() {
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Addresses(ips(&[PUBLIC_ADDRESS]))).await;
    let (receiver, calls) = receiver(&authority, &["a.internal.example", "a.example", PUBLIC_ADDRESS]).await;
    let port = receiver.address.port();
    let all_but = |ports: &str, hosts: &str| {
        let lenient = only_public(&authority, &name_server);
        let strict = lenient.address_policy.clone();
        let address_policy = strict.with_ports(ports.parse().unwrap()).without_hosts(hosts.parse().unwrap());
        Client::new(EgressConfig { address_policy, ..lenient })
    };
    let error = async |egress: &Client, host: &str| {
        let answer = egress.post(crate::post(&format!("https://{host}:{port}/"))).await;
        assert_eq!((answer.class, answer.status), (RefusedAddress, None), "{host}");
        answer.error.unwrap()
    };
    let message = "deliveries to this host are not allowed (\"a.internal.example\")";
    assert_eq!(error(&all_but("", "internal.example"), "A.Internal.example").await, message);
    let message = format!("deliveries to this port are not allowed ({port})");
    for host in ["a.example", PUBLIC_ADDRESS] {
        assert_eq!(error(&all_but("1-2", ""), host).await, message);
    }
    assert!(name_server.names().is_empty() && all(calls).is_empty());
    assert_eq!(ask(&all_but(&port.to_string(), "internal.example"), &receiver, "a.example").await, Success);
}

#[tokio::test]
async fn a_receiver_that_cannot_be_reached_was_asked_and_one_that_the_operator_does_not_allow_was_not() {
    let authority = Authority::new();
    let name_server = NameServer::start(|name, _| match name {
        "internal.example" => Say::Addresses(ips(&["10.0.0.1", "127.0.0.1"])),
        "missing.example" => Say::NoSuchName,
        _ => Say::Addresses(ips(&[PUBLIC_ADDRESS])),
    })
    .await;
    let (receiver, _calls) = receiver(&authority, &["a.example"]).await;
    let open = receiver.address.port();
    let closed = tokio::net::TcpListener::bind((PUBLIC_ADDRESS, 0)).await.unwrap().local_addr().unwrap().port();
    let lenient = only_public(&authority, &name_server);
    let address_policy = lenient.address_policy.clone().with_ports(format!("{open},{closed}").parse().unwrap());
    let address_policy = address_policy.without_hosts("denied.example".parse().unwrap());
    let egress = Client::new(EgressConfig { address_policy, ..lenient });
    for (host, port, is_reached) in [
        ("a.example", open, Some(true)),
        ("a.example", closed, Some(false)),
        // It shows another name's certificate.
        ("b.example", open, Some(false)),
        ("missing.example", open, Some(false)),
        ("internal.example", open, Some(false)),
        ("127.0.0.1", open, None),
        ("a.example", 1, None),
        ("denied.example", open, None),
    ] {
        let post = crate::post(&format!("https://{host}:{port}/"));
        assert_eq!(egress.0.reaches(&post.url).await, is_reached, "{host}:{port}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_not_even_looked_up() {
    let authority = Authority::new();
    let name_server = NameServer::start(|_, _| Say::Addresses(ips(&[PUBLIC_ADDRESS]))).await;
    let (other, calls) = receiver(&authority, &["other.example"]).await;
    let egress = Client::new(only_public(&authority, &name_server));
    for status in [300, 301, 302, 303, 307, 308] {
        let location = format!("https://other.example:{}/", other.address.port());
        let text = format!(
            "HTTP/1.1 {status} X\r\nLocation: {location}\r\nRefresh: 0; url={location}\r\nContent-Length: 0\r\n\r\n"
        );
        let receiver = Receiver::answering(authority.acceptor(&["a.example"]), text).await;
        assert_eq!(ask(&egress, &receiver, "a.example").await, OutcomeClass::Status);
    }
    assert_eq!((other.accepted(), all(calls).len()), (0, 0));
    assert_eq!(name_server.names(), ["a.example"]);
}
