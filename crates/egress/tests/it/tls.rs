//! Receivers whose TLS or certificate is unacceptable.

use domain::OutcomeClass::{Success, Tls};
use rcgen::date_time_ymd;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, rustls::HandshakeKind};

use crate::{
    LONG,
    authority::{Authority, self_signed},
    egress, post,
    receiver::Receiver,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

async fn refusal(authority: &Authority, acceptor: TlsAcceptor) -> String {
    let receiver = Receiver::answering(acceptor, OK).await;
    let answer = egress(authority, LONG).post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Tls, None), "{:?}", answer.error);
    assert!(receiver.received().is_empty(), "nothing is sent to a receiver that is not who it should be");
    answer.error.unwrap()
}

#[tokio::test]
async fn certificates_that_do_not_verify_are_refused_with_the_reason() {
    let authority = Authority::new();
    let local = ["127.0.0.1"];
    let unknown = "the certificate is signed by an unknown authority";
    assert_eq!(refusal(&authority, self_signed(&local)).await, unknown);
    assert_eq!(refusal(&authority, Authority::named("another").acceptor(&local)).await, unknown);
    let expired = authority.acceptor_with(&local, |params| params.not_after = date_time_ymd(2026, 1, 2));
    assert_eq!(refusal(&authority, expired).await, "the certificate expired on 2026-01-02");
    let early = authority.acceptor_with(&local, |params| params.not_before = date_time_ymd(2999, 1, 2));
    assert_eq!(refusal(&authority, early).await, "the certificate is not valid before 2999-01-02");
    let other = authority.acceptor(&["example.com"]);
    assert_eq!(refusal(&authority, other).await, "the certificate is not valid for the name \"127.0.0.1\"");
}

#[tokio::test]
async fn a_name_is_verified_as_it_was_written_and_not_as_it_resolved() {
    let authority = Authority::new();
    for (host, class) in [("localhost", Success), ("127.0.0.1", Tls)] {
        let receiver = Receiver::answering(authority.acceptor(&["localhost"]), OK).await;
        let url = format!("https://{host}:{}/", receiver.address.port());
        let answer = egress(&authority, LONG).post(post(&url)).await;
        assert_eq!(answer.class, class, "{host}: {:?}", answer.error);
    }
}

#[tokio::test]
async fn the_second_connection_to_a_host_resumes_its_session() {
    let authority = Authority::new();
    let (kinds, mut seen) = mpsc::unbounded_channel();
    let receiver = Receiver::tls(authority.acceptor(&["127.0.0.1"]), move |mut peer| {
        let _ = kinds.send(peer.stream.get_ref().1.handshake_kind().unwrap());
        async move {
            peer.request().await;
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let egress = egress(&authority, LONG);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
        assert_eq!(seen.recv().await, Some(kind));
    }
}

#[tokio::test]
async fn what_is_not_tls_or_too_old_a_tls_is_refused() {
    // A TLS 1.1 record with a TLS 1.1 ServerHello: random, no session, AES-128-CBC, no compression.
    let hello =
        [b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02".as_slice(), &[7; 32], b"\x00\xc0\x13\x00"].concat().leak();
    let too_old = "the receiver speaks neither TLS 1.2 nor TLS 1.3";
    for (reply, message) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "the receiver does not speak TLS on this port"),
        (hello, too_old),
        // An alert in a TLS 1.1 record: fatal, protocol_version.
        (b"\x15\x03\x02\x00\x02\x02\x46", too_old),
        (b"", "the receiver closed the connection"),
    ] {
        let receiver = Receiver::tcp(move |mut tcp, _| async move {
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(reply).await;
        })
        .await;
        let answer = egress(&Authority::new(), LONG).post(post(&receiver.url())).await;
        assert_eq!(answer.class, Tls, "{:?}", answer.error);
        assert_eq!(answer.error.unwrap(), format!("the TLS handshake failed: {message}"));
    }
}
