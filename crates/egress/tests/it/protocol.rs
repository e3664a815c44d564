//! Receivers that do not speak HTTP/1.1.

use domain::OutcomeClass::{Protocol, Status, Success};

use crate::{LONG_TIMEOUT, authority::Authority, egress, post, receiver::Receiver};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];

#[tokio::test]
async fn what_is_not_an_http_answer_is_a_protocol_failure() {
    let authority = Authority::new();
    for (text, message) in [
        (&b"SSH-2.0-OpenSSH_9.9\r\n\r\n"[..], "the answer is not HTTP/1.1: "),
        (b"HTTP/1.1 two hundred\r\n\r\n", "the answer is not HTTP/1.1: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "the answer is not HTTP/1.1: "),
        (b"HTTP/2 200\r\n\r\n", "the answer is not HTTP/1.1: "),
        (b"HTTP/1.1 200 O", "the receiver closed the connection before it had answered"),
        (b"", "the receiver closed the connection before it had answered"),
    ] {
        let receiver = Receiver::closing(authority.acceptor(&LOCAL_ADDRESSES), text).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        let error = answer.error.unwrap();
        assert_eq!((answer.class, answer.status), (Protocol, None), "{error}");
        assert!(error.starts_with(message), "{error}");
        assert_eq!(receiver.accepted(), 1, "only a stale connection is replaced");
    }
}

#[tokio::test]
async fn a_receiver_that_resets_the_connection_is_a_protocol_failure() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |peer| async move {
        // Closing with unread bytes resets the connection. The request is larger than what TLS has read.
        let _ = peer.stream.get_ref().0.readable().await;
    })
    .await;
    let mut request = post(&receiver.url());
    request.body = vec![b'x'; 1 << 20].into();
    let answer = egress(&authority, LONG_TIMEOUT).post(request).await;
    let error = answer.error.unwrap();
    assert_eq!(answer.class, Protocol, "{error}");
    assert_eq!(error, "the receiver reset the connection before it had answered");
}

#[tokio::test]
async fn an_answer_s_header_may_have_far_more_than_a_hundred_lines() {
    let authority = Authority::new();
    let lines = |number: usize| (0..number).map(|line| format!("X-{line:05}: {line:021}\r\n")).collect::<String>();
    let (few, most, beyond) = (lines(101), lines(1999), lines(2000));
    let reason = |length| "O".repeat(length);
    for (text, class) in [
        (format!("HTTP/1.1 200 OK\r\n{few}Content-Length: 5\r\n\r\nhello"), Success),
        (format!("HTTP/1.1 200 OK\r\n{most}Content-Length: 5\r\n\r\nhello"), Success),
        (format!("HTTP/1.1 500 Oops\r\n{few}Content-Length: 5\r\n\r\nhello"), Status),
        (format!("HTTP/1.1 103 X\r\n{most}\r\nHTTP/1.1 500 X\r\n{most}Content-Length: 5\r\n\r\nhello"), Status),
        (format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{few}\r\n"), Success),
        (format!("HTTP/1.1 200 {}\r\nContent-Length: 5\r\n\r\nhello", reason(60_000)), Success),
        (format!("HTTP/1.1 200 OK\r\n{beyond}Content-Length: 5\r\n\r\nhello"), Protocol),
        (format!("HTTP/1.1 200 {}\r\nContent-Length: 5\r\n\r\nhello", reason(200_000)), Protocol),
    ] {
        let begin: String = text.chars().take(40).collect();
        let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), text).await;
        let egress = egress(&authority, LONG_TIMEOUT);
        for _ in 0..2 {
            let answer = egress.post(post(&receiver.url())).await;
            let body: &[u8] = if class == Protocol { b"" } else { b"hello" };
            assert_eq!((answer.class, answer.head.as_slice()), (class, body), "{begin}: {:?}", answer.error);
        }
        let is_reused = class != Protocol && !begin.contains("103");
        assert_eq!(receiver.accepted(), if is_reused { 1 } else { 2 }, "{begin}");
    }
}

#[tokio::test]
async fn a_header_in_an_old_or_broken_way_hides_no_status() {
    let authority = Authority::new();
    let length = "Content-Length: 5\r\n";
    for head in [
        format!("HTTP/1.1 200 OK\r\nX-Folded: one\r\n two\r\n\tthree\r\n{length}\r\n"),
        format!("HTTP/1.1 200 OK\r\nX-Space : a\r\n{length}\r\n"),
        format!("HTTP/1.1 200 OK\r\nno colon\r\n: no name\r\n{length}\r\n"),
        format!("HTTP/1.1 200 OK\r\nX-Bell: \u{7}\r\n{length}\r\n"),
        format!("\r\n\r\nHTTP/1.1 200 OK\r\n{length}\r\n"),
        format!("HTTP/1.1 200\r\n{length}\r\n"),
        "HTTP/1.1 200 OK\nContent-Length: 5\n\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{length}{length}\r\n"),
        format!("HTTP/1.1 200 S\u{e3}o Paulo\r\n{length}\r\n"),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\n\r\n".to_owned(),
    ] {
        let receiver = Receiver::closing(authority.acceptor(&LOCAL_ADDRESSES), format!("{head}hello")).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.head.as_slice()), (Success, &b"hello"[..]), "{head:?}: {:?}", answer.error);
    }
}

#[tokio::test]
async fn a_chunked_answer_with_a_length_as_well_is_read_by_its_chunks() {
    let authority = Authority::new();
    for (first, second) in [("Content-Length: 3\r\n", ""), ("", "Content-Length: 300\r\n")] {
        let head = format!("HTTP/1.1 200 OK\r\n{first}Transfer-Encoding: chunked\r\n{second}\r\n");
        let receiver =
            Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), format!("{head}5\r\nhello\r\n0\r\n\r\n")).await;
        let egress = egress(&authority, LONG_TIMEOUT);
        for _ in 0..2 {
            let answer = egress.post(post(&receiver.url())).await;
            assert_eq!(
                (answer.class, answer.head.as_slice()),
                (Success, &b"hello"[..]),
                "{head:?}: {:?}",
                answer.error
            );
        }
    }
}

#[tokio::test]
async fn an_answer_without_end_ends_before_the_deadline() {
    let authority = Authority::new();
    let too_long = Some("the answer is too long".to_owned());
    let failed = Some("the receiver answered 500 Internal Server Error".to_owned());
    for (head, piece, outcome) in [
        ("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", (Protocol, too_long)),
        ("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n", "0", (Status, failed)),
    ] {
        let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
            peer.request().await;
            peer.send(head).await;
            let pieces = piece.repeat(1000);
            while peer.send(&pieces).await {}
        })
        .await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert!(answer.elapsed < LONG_TIMEOUT, "{piece:?}: {:?}", answer.elapsed);
        assert_eq!((answer.class, answer.error), outcome);
        receiver.all_closed().await;
    }
}

#[tokio::test]
async fn switching_protocols_is_a_status_and_ends_the_connection() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await;
        peer.gone().await;
    })
    .await;
    let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Status, Some(101)));
    receiver.all_closed().await;
}
