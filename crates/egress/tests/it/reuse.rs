//! The connection pool.

use std::time::Duration;

use domain::OutcomeClass::{Protocol, Success};
use egress::EgressConfig;
use tokio::io::AsyncWriteExt;

use crate::{Client, LONG, authority::Authority, config, egress, post, receiver::Receiver};

const LOCAL: [&str; 1] = ["127.0.0.1"];
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn a_connection_is_used_again() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&LOCAL), OK).await;
    let egress = egress(&authority, LONG);
    for _ in 0..5 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    assert_eq!((receiver.received().len(), receiver.accepted()), (5, 1));
}

#[tokio::test]
async fn a_connection_that_the_receiver_closes_between_two_posts_is_not_a_failure() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL), |mut peer| async move {
        peer.request().await;
        peer.send(OK).await;
        let _ = peer.stream.shutdown().await;
    })
    .await;
    let egress = egress(&authority, LONG);
    for _ in 0..20 {
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    assert_eq!(receiver.accepted(), 20);
}

#[tokio::test]
async fn a_reused_connection_that_breaks_before_an_answer_is_replaced() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL), |mut peer| async move {
        peer.request().await;
        peer.send(OK).await;
        // The first connection takes a second request and breaks.
        if peer.request().await.is_some() && peer.number > 0 {
            peer.send(OK).await;
        }
    })
    .await;
    let egress = egress(&authority, LONG);
    for _ in 0..2 {
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    let received = receiver.received();
    assert_eq!((received.len(), receiver.accepted()), (3, 2));
    assert_eq!((&received[1].head, &received[1].body), (&received[2].head, &received[2].body));
}

#[tokio::test]
async fn a_reused_connection_that_breaks_in_an_answer_is_a_failure() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL), |mut peer| async move {
        peer.request().await;
        peer.send(OK).await;
        peer.request().await;
        peer.send("HTTP/1.1 2").await;
    })
    .await;
    let egress = egress(&authority, LONG);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Protocol);
    assert_eq!((receiver.received().len(), receiver.accepted()), (2, 1));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read_to_its_end_for_the_sake_of_reuse() {
    let authority = Authority::new();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let receiver = Receiver::answering(authority.acceptor(&LOCAL), text).await;
    let egress = egress(&authority, LONG);
    for _ in 0..2 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    assert_eq!(receiver.accepted(), 2);
    receiver.all_closed().await;
}

#[tokio::test]
async fn unused_connections_to_many_hosts_are_closed() {
    let authority = Authority::new();
    let hosts: Vec<_> = (1..=30).map(|host| format!("127.0.0.{host}")).collect();
    let names: Vec<_> = hosts.iter().map(String::as_str).collect();
    let receiver = Receiver::answering(authority.acceptor(&names), OK).await;
    let idle_timeout = Duration::from_millis(200);
    let egress = Client::new(EgressConfig { idle_timeout, ..config(&authority, LONG) });
    for host in &hosts {
        let answer = egress.post(post(&format!("https://{host}:{}/", receiver.address.port()))).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    assert_eq!(receiver.accepted(), 30);
    receiver.all_closed().await;
}

#[tokio::test]
async fn no_more_unused_connections_to_all_hosts_are_kept_than_configured() {
    let authority = Authority::new();
    let hosts: Vec<_> = (1..=40).map(|host| format!("127.0.0.{host}")).collect();
    let names: Vec<_> = hosts.iter().map(String::as_str).collect();
    let receiver = Receiver::answering(authority.acceptor(&names), OK).await;
    let idle_timeout = Duration::from_secs(600);
    let egress = Client::new(EgressConfig { idle_timeout, max_idle: 10, ..config(&authority, LONG) });
    for host in &hosts {
        let answer = egress.post(post(&format!("https://{host}:{}/", receiver.address.port()))).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    assert_eq!(receiver.accepted(), 40);
    receiver.open_at_most(12).await;
    let first = format!("https://{}:{}/", hosts[0], receiver.address.port());
    assert_eq!(egress.post(post(&first)).await.class, Success);
    assert_eq!(receiver.accepted(), 40, "those that are kept are used");
}

#[tokio::test]
async fn no_more_unused_connections_to_one_host_are_kept_than_configured() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&LOCAL), OK).await;
    let egress = Client::new(EgressConfig { max_idle_per_host: 0, ..config(&authority, LONG) });
    for _ in 0..3 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    assert_eq!(receiver.accepted(), 3);
    receiver.all_closed().await;
}
