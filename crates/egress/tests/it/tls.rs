//! Receivers whose TLS or certificate is unacceptable.

use domain::OutcomeClass::{Success, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, date_time_ymd};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, rustls::HandshakeKind};

use crate::{
    LONG_TIMEOUT,
    authority::{Authority, self_signed},
    egress, post,
    receiver::Receiver,
};

const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

async fn refusal(authority: &Authority, acceptor: TlsAcceptor) -> String {
    let receiver = Receiver::answering(acceptor, OK_RESPONSE).await;
    let answer = egress(authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Tls, None), "{:?}", answer.error);
    assert!(receiver.received().is_empty(), "nothing is sent to a receiver that is not who it should be");
    answer.error.unwrap()
}

#[tokio::test]
async fn certificates_that_do_not_verify_are_refused_with_the_reason() {
    let authority = Authority::new();
    let local = ["127.0.0.1"];
    let unknown = "the certificate is signed by an unknown authority; ask the receiver's operator for one of a public \
                   authority, and to send the intermediate certificates with it";
    assert_eq!(refusal(&authority, self_signed(&local)).await, unknown);
    assert_eq!(refusal(&authority, Authority::named("another").acceptor(&local)).await, unknown);
    let other = authority.acceptor(&["example.com"]);
    assert_eq!(
        refusal(&authority, other).await,
        "the certificate is not valid for the name 127.0.0.1; correct the webhook's URL, or ask the receiver's \
         operator for a certificate with this name"
    );
    let of_an_authority =
        authority.acceptor_with(&local, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert_eq!(
        refusal(&authority, of_an_authority).await,
        "the certificate is that of an authority (CA:TRUE), not of a server; ask the receiver's operator for a \
         server's certificate of a public authority"
    );
    // It has the name of the trusted authority.
    let namesake = refusal(&authority, Authority::new().acceptor(&local)).await;
    assert!(namesake.starts_with("the certificate is signed by an unknown authority, or "), "{namesake}");
}

#[tokio::test]
async fn wrong_dates_are_the_receiver_s_own_or_those_of_an_intermediate() {
    let (authority, local) = (Authority::new(), ["127.0.0.1"]);
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2026, 1, 2);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(2999, 1, 2);
    let (own, between) = ("the receiver's own certificate", "an intermediate certificate that the receiver sends");
    let current = "ask the receiver's operator to send the authority's current one";
    for (acceptor, message) in [
        (
            authority.acceptor_with(&local, expired),
            format!("{own} expired on 2026-01-02; ask the receiver's operator to renew it"),
        ),
        (
            authority.acceptor_with(&local, early),
            format!("{own} is not valid before 2999-01-02; ask the receiver's operator for one that is valid now"),
        ),
        (authority.acceptor_through(&local, expired), format!("{between} expired on 2026-01-02; {current}")),
        (authority.acceptor_through(&local, early), format!("{between} is not valid before 2999-01-02; {current}")),
    ] {
        assert_eq!(refusal(&authority, acceptor).await, message);
    }
    let receiver = Receiver::answering(authority.acceptor_through(&local, |_| {}), OK_RESPONSE).await;
    assert_eq!(egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await.class, Success);
}

#[tokio::test]
async fn a_name_is_verified_as_it_was_written_and_not_as_it_resolved() {
    let authority = Authority::new();
    for (host, class) in [("localhost", Success), ("127.0.0.1", Tls)] {
        let receiver = Receiver::answering(authority.acceptor(&["localhost"]), OK_RESPONSE).await;
        let url = format!("https://{host}:{}/", receiver.address.port());
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&url)).await;
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
    let egress = egress(&authority, LONG_TIMEOUT);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
        assert_eq!(seen.recv().await, Some(kind));
    }
}

/// A receiver that reads a client's first message, answers with these bytes and closes.
async fn replying(reply: impl Into<Vec<u8>>) -> Receiver {
    let reply = reply.into();
    Receiver::tcp(move |mut tcp, _| {
        let reply = reply.clone();
        async move {
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(&reply).await;
        }
    })
    .await
}

#[tokio::test]
async fn what_is_not_tls_or_too_old_a_tls_is_refused() {
    // A TLS 1.1 record with a TLS 1.1 ServerHello: random, no session, AES-128-CBC, no compression.
    let hello = [b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02".as_slice(), &[7; 32], b"\x00\xc0\x13\x00"].concat();
    let too_old = "the receiver speaks neither TLS 1.2 nor TLS 1.3; ask the receiver's operator for TLS 1.3, or ";
    let no_tls = "the receiver does not speak TLS on this port; correct the port in the webhook's URL, or ask ";
    for (reply, message) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), no_tls),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), no_tls),
        (hello, too_old),
        // An alert in a TLS 1.1 record: fatal, protocol_version.
        (b"\x15\x03\x02\x00\x02\x02\x46".to_vec(), too_old),
        (Vec::new(), "the receiver closed the connection; ask the receiver's operator for TLS 1.3, or TLS 1.2 with "),
    ] {
        let receiver = replying(reply).await;
        let answer = egress(&Authority::new(), LONG_TIMEOUT).post(post(&receiver.url())).await;
        let error = answer.error.unwrap();
        assert!(answer.class == Tls && error.starts_with(&format!("the TLS handshake failed: {message}")), "{error}");
    }
}

#[tokio::test]
async fn an_alert_says_what_to_ask_the_receiver_s_operator_for() {
    let nothing_in_common = "the TLS handshake failed: no cipher suite or type of key in common; ask the receiver's \
                             operator for TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20, and a certificate for \
                             this host with a P-256, P-384, Ed25519 or RSA key (2048 bits or more)";
    let handshake_failure = "the TLS handshake failed: no common cipher suite or key type, or no client certificate; ask \
                             the receiver's operator for TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20, a \
                             certificate for this host with a P-256, P-384, Ed25519 or RSA key (2048 bits or more), and \
                             to demand no client certificate";
    let client_certificate = "the TLS handshake failed: the receiver wants a client certificate, and deliveries come \
                              without one; ask the receiver's operator to accept deliveries without one, and to verify their signature \
                              instead";
    let unknown_name = "the TLS handshake failed: the receiver does not know the host name; correct the webhook's URL, \
                        or ask the receiver's operator for a certificate for this name";
    let internal_error = "the TLS handshake failed: the receiver reports an internal error; ask the receiver's operator \
                          what the receiver's log says, and whether it has a certificate for this host name";
    let no_http = "the TLS handshake failed: the receiver does not accept HTTP/1.1; ask the receiver's operator to \
                   allow HTTP/1.1, also to clients that do not name it (ALPN)";
    let denied = "the TLS handshake failed: received fatal alert: AccessDenied; ask the receiver's operator what the \
                  receiver's log says";
    for (alert, message) in [
        (40, handshake_failure),
        (71, nothing_in_common),
        (42, client_certificate),
        (48, client_certificate),
        (116, client_certificate),
        (112, unknown_name),
        (80, internal_error),
        (120, no_http),
        (49, denied),
    ] {
        let receiver = replying([0x15, 3, 3, 0, 2, 2, alert]).await;
        let answer = egress(&Authority::new(), LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error.as_deref()), (Tls, Some(message)), "alert {alert}");
    }
}
