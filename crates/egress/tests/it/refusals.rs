//! Destinations that are not connected to.

use domain::{
    Destinations,
    OutcomeClass::{Connect, Dns, RefusedAddress, Success},
};
use egress::EgressConfig;
use tokio::net::TcpListener;

use crate::{Client, LONG, authority::Authority, config, egress, post, receiver::Receiver};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn refused_addresses_are_not_connected_to() {
    let authority = Authority::new();
    let destinations = Destinations::default();
    let egress = Client::new(EgressConfig { destinations, ..config(&authority, LONG) });
    let receiver = Receiver::answering(authority.acceptor(&["127.0.0.1", "::1", "localhost"]), OK).await;
    for (host, class, message) in [
        ("127.0.0.1", RefusedAddress, "127.0.0.1 is not a public address (loopback)"),
        ("[::1]", RefusedAddress, "::1 is not a public address (loopback)"),
        ("localhost", Dns, "the host name \"localhost\" does not resolve to a public address"),
    ] {
        let answer = egress.post(post(&format!("https://{host}:{}/", receiver.address.port()))).await;
        assert_eq!((answer.class, answer.error.as_deref()), (class, Some(message)));
    }
    assert_eq!(receiver.accepted(), 0);
    let answer = crate::egress(&authority, LONG).post(post(&receiver.url())).await;
    assert_eq!(answer.class, Success, "the policy makes the difference");
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_refuses_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let answer = egress(&Authority::new(), LONG).post(post(&format!("https://{address}/"))).await;
    assert_eq!((answer.class, answer.error), (Connect, Some(format!("connection refused by {address}"))));
}

#[tokio::test]
async fn names_without_an_address_do_not_resolve() {
    let egress = egress(&Authority::new(), LONG);
    let answer = egress.post(post("https://nowhere.invalid/")).await;
    let message = "the host name \"nowhere.invalid\" does not resolve to a public address";
    assert_eq!((answer.class, answer.error.as_deref()), (Dns, Some(message)));
}
