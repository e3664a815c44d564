//! Answers with a status, the request's bytes, and the deadline.

use domain::{
    OutcomeClass::{Status, Success, Timeout},
    ReceiverHeaders,
};

use crate::{LONG_TIMEOUT, SHORT_TIMEOUT, authority::Authority, egress, post, receiver::Receiver};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];

#[tokio::test]
async fn the_status_decides() {
    let authority = Authority::new();
    for (line, class, status, error) in [
        ("200 OK", Success, 200, None),
        ("202 Whatever", Success, 202, None),
        ("299 ", Success, 299, None),
        (
            "302 Found\r\nLocation: https://127.0.0.1:1/",
            Status,
            302,
            Some("the receiver answered 302 Found and redirects to https://127.0.0.1:1/; redirects are not followed"),
        ),
        ("400 <script>", Status, 400, Some("the receiver answered 400 Bad Request")),
        ("200 OK\r\nRetry-After: 120", Success, 200, None),
        ("599 Oops", Status, 599, Some("the receiver answered 599")),
        ("999 Request denied", Status, 999, Some("the receiver answered 999")),
    ] {
        let text = format!("HTTP/1.1 {line}\r\nContent-Length: 5\r\n\r\nhello");
        let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), text).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.status, answer.error.as_deref()), (class, Some(status), error));
        assert_eq!(answer.head, b"hello");
        assert_eq!(receiver.accepted(), 1, "a redirect is not followed");
    }
}

#[tokio::test]
async fn answers_without_a_body_and_of_http_1_0_are_answers() {
    let authority = Authority::new();
    for answer in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"] {
        let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), answer).await;
        let answer = egress(&authority, LONG_TIMEOUT).post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.head.as_slice(), answer.error), (Success, &b""[..], None));
    }
}

#[tokio::test]
async fn the_request_is_written_as_the_specification_spells_it() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), "HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut request = post(&format!("https://{}/a/%C3%BC?b=c&d=%20#part", receiver.address));
    request.receiver_headers = ReceiverHeaders::from_text(
        "authorization: Bearer a: b\nX-API-Key: k\nX-Service-Event: forged\nUser-Agent: forged\n".to_owned(),
    );
    request.headers = vec![
        ("X-Service-Webhook-Id", "1f".to_owned()),
        ("X-Service-Event", "quote.closed".to_owned()),
        ("X-Service-Signature", "t=1,v1=00".to_owned()),
        ("User-Agent", "another".to_owned()),
        ("Accept", "text/html".to_owned()),
    ];
    let mut body: Vec<u8> = (0..=255).collect();
    body.extend("{\"a\": 1.0,\"\u{fc}\":\r\n []}".bytes());
    request.body = body.clone().into();
    assert_eq!(egress(&authority, LONG_TIMEOUT).post(request).await.class, Success);
    let [received] = receiver.received().try_into().unwrap();
    let mut lines: Vec<_> = received.head.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /a/%C3%BC?b=c&d=%20 HTTP/1.1");
    lines.sort_unstable();
    let (host, length) = (format!("Host: {}", receiver.address), format!("Content-Length: {}", body.len()));
    let expected = [
        "Accept-Encoding: identity",
        "Accept: */*",
        "Authorization: Bearer a: b",
        length.as_str(),
        "Content-Type: application/json",
        &host,
        "User-Agent: test-agent/1",
        "X-Api-Key: k",
        "X-Service-Event: quote.closed",
        "X-Service-Signature: t=1,v1=00",
        "X-Service-Webhook-Id: 1f",
    ];
    assert_eq!(lines, expected);
    assert_eq!(received.body, body);
}

#[tokio::test]
async fn a_receiver_that_never_answers_times_out_and_loses_its_connection() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        peer.gone().await;
    })
    .await;
    let answer = egress(&authority, SHORT_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Timeout, None));
    assert_eq!(answer.error.unwrap(), "no answer within 2 s");
    assert!(answer.elapsed >= SHORT_TIMEOUT && answer.elapsed < SHORT_TIMEOUT * 3, "{:?}", answer.elapsed);
    receiver.all_closed().await;
}

#[tokio::test]
async fn a_receiver_that_stalls_in_the_tls_handshake_times_out_and_loses_its_connection() {
    use tokio::io::AsyncReadExt;
    let receiver =
        Receiver::tcp(|mut tcp, _| async move { while tcp.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} })
            .await;
    let answer = egress(&Authority::new(), SHORT_TIMEOUT).post(post(&receiver.url())).await;
    assert_eq!(answer.class, Timeout);
    receiver.all_closed().await;
}

#[tokio::test]
async fn a_dropped_post_closes_its_connection() {
    let authority = Authority::new();
    let (arrived, mut waiting) = tokio::sync::mpsc::channel(1);
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| {
        let arrived = arrived.clone();
        async move {
            peer.request().await;
            arrived.send(()).await.unwrap();
            peer.gone().await;
        }
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    tokio::select! {
        answer = egress.post(post(&receiver.url())) => panic!("{answer:?}"),
        _ = waiting.recv() => {}
    }
    receiver.all_closed().await;
}
