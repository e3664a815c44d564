//! What a receiver may do with the body of its answer.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::OutcomeClass::{Status, Success};
use tokio::{io::AsyncReadExt, sync::mpsc, time::timeout};

use crate::{LONG_TIMEOUT, SHORT_TIMEOUT, authority::Authority, egress, post, receiver::Receiver};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];

/// The time for the body of a successful answer.
const AFTER_SUCCESS: Duration = Duration::from_millis(250);

/// Answers with a header, and then with the same piece of body again and again.
async fn endless(authority: &Authority, header: &'static str, piece: Vec<u8>) -> Receiver {
    Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| {
        let piece = piece.clone();
        async move {
            peer.request().await;
            peer.send(header).await;
            while peer.send(&piece).await {}
        }
    })
    .await
}

#[tokio::test]
async fn an_endless_body_is_cut_short_and_the_status_counts() {
    let authority = Authority::new();
    let chunk = [b"1000\r\n", [b'x'; 0x1000].as_slice(), b"\r\n"].concat();
    for (header, piece) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", vec![b'x'; 4096]),
        ("HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 4096]),
    ] {
        let receiver = endless(&authority, header, piece).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error, answer.head), (Success, None, vec![b'x'; 1024]));
        assert!(answer.elapsed < LONG_TIMEOUT / 2, "{:?}", answer.elapsed);
        receiver.all_closed().await;
    }
}

/// Answers a request with this, and then hangs.
async fn stalling(authority: &Authority, text: &'static str) -> Receiver {
    Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
        peer.request().await;
        peer.send(text).await;
        peer.gone().await;
    })
    .await
}

#[tokio::test]
async fn a_body_that_stalls_after_a_success_is_cut_short_and_the_time_to_the_status_counts() {
    let authority = Authority::new();
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe beginning",
        "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nthe beginning\r\n",
        "HTTP/1.1 205 Reset Content\r\n\r\nthe beginning",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nthe beginning",
    ] {
        let receiver = stalling(&authority, text).await;
        let egress = egress(&authority, LONG_TIMEOUT);
        let began = Instant::now();
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error, answer.head.as_slice()), (Success, None, &b"the beginning"[..]));
        let took = began.elapsed();
        assert!(took >= AFTER_SUCCESS && took < LONG_TIMEOUT, "{took:?}");
        assert!(answer.elapsed <= took - AFTER_SUCCESS, "{:?} of {took:?}", answer.elapsed);
        receiver.all_closed().await;
    }
}

#[tokio::test]
async fn a_body_that_stalls_after_a_failure_is_cut_short_at_the_deadline_and_the_status_counts() {
    let authority = Authority::new();
    let receiver = stalling(&authority, "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nthe beginning").await;
    let answer = egress(&authority, SHORT_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.head.as_slice()), (Status, &b"the beginning"[..]));
    assert!(answer.elapsed >= SHORT_TIMEOUT && answer.elapsed < SHORT_TIMEOUT * 3, "{:?}", answer.elapsed);
    receiver.all_closed().await;
}

#[tokio::test]
async fn a_body_that_breaks_is_cut_short_and_the_status_counts() {
    let authority = Authority::new();
    for broken in ["Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nno length\r\n"] {
        let text = format!("HTTP/1.1 200 OK\r\n{broken}");
        let receiver = Receiver::closing(authority.acceptor(&LOCAL_ADDRESSES), text).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error, answer.head.as_slice()), (Success, None, &b"abc"[..]), "{broken}");
    }
}

#[tokio::test]
async fn a_body_in_another_charset_is_kept_in_utf_8() {
    let authority = Authority::new();
    let head = "HTTP/1.1 500 Oops\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Length: 1000\r\n\r\n";
    let receiver =
        Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), [head.as_bytes(), &[0xfc; 1000]].concat()).await;
    let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!((answer.class, String::from_utf8(answer.head).unwrap()), (Status, "\u{fc}".repeat(512)));
}

#[tokio::test]
async fn the_head_is_the_first_kibibyte() {
    let authority = Authority::new();
    for length in [1023_usize, 1024, 1025, 16 * 1024] {
        let body: Vec<u8> = (0..=250).cycle().take(length).collect();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let receiver =
            Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), [text.as_bytes(), &body].concat()).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.head), (Success, body[..length.min(1024)].to_vec()));
    }
}

/// A request's body that shows when nobody holds it any more.
struct Watched {
    bytes: Vec<u8>,
    _alive: mpsc::Sender<()>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[tokio::test]
async fn an_early_answer_counts_and_the_request_that_nobody_reads_is_given_up() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await;
        pending::<()>().await;
    })
    .await;
    let mut request = post(&receiver.url());
    let (alive, mut held) = mpsc::channel(1);
    request.body = Bytes::from_owner(Watched { bytes: vec![b'x'; 16 << 20], _alive: alive });
    let egress = egress(&authority, SHORT_TIMEOUT);
    let answer = egress.post(request).await;
    assert_eq!((answer.class, answer.status), (Status, Some(413)), "{:?}", answer.error);
    assert!(timeout(SHORT_TIMEOUT * 5, held.recv()).await.is_ok(), "the connection still holds the body");
}

#[tokio::test]
async fn an_early_answer_counts_though_the_connection_is_reset_after_it() {
    let authority = Authority::new();
    for (line, class, status) in [("413 Too Large", Status, 413), ("200 OK", Success, 200)] {
        for length in [1 << 16, 200 << 10, 1 << 20, 16 << 20] {
            let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
                // Otherwise the receiver's own system may hold the answer back, and drop it.
                peer.stream.get_ref().0.set_nodelay(true).unwrap();
                let mut head = [0; 100];
                peer.stream.read_exact(&mut head[..if peer.number % 2 == 0 { 0 } else { 100 }]).await.unwrap();
                // Closing with unread bytes resets the connection.
                peer.send(format!("HTTP/1.1 {line}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")).await;
            })
            .await;
            let egress = egress(&authority, LONG_TIMEOUT);
            for _ in 0..10 {
                let request = egress::Post { body: vec![b'x'; length].into(), ..post(&receiver.url()) };
                let answer = egress.post(request).await;
                assert_eq!((answer.class, answer.status), (class, Some(status)), "{length}: {:?}", answer.error);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_the_connection_counts_without_the_alert_of_tls() {
    let authority = Authority::new();
    for head in ["HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
            peer.request().await;
            peer.send(head).await;
            peer.send("hello").await;
        })
        .await;
        let egress = egress(&authority, LONG_TIMEOUT);
        for _ in 0..2 {
            let answer = egress.post(post(&receiver.url())).await;
            assert_eq!((answer.class, answer.error, answer.head.as_slice()), (Success, None, &b"hello"[..]));
        }
        assert_eq!(receiver.accepted(), 2);
    }
}
