//! Requests to the operator's own application.

use egress::{EgressError, Internal, InternalAnswer, InternalConfig, InternalError};
use tokio::{io::AsyncWriteExt, net::TcpListener, sync::mpsc, time::timeout};

use crate::{
    LONG_TIMEOUT, SHORT_TIMEOUT,
    authority::Authority,
    receiver::{Receiver, read_request},
};

const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

fn config(url: String) -> InternalConfig {
    InternalConfig {
        url,
        timeout: LONG_TIMEOUT,
        extra_ca_pem: None,
        user_agent: "test-agent/1".to_owned(),
        answer_limit: 64 * 1024,
    }
}

async fn ask(config: InternalConfig) -> Result<InternalAnswer, InternalError> {
    let internal = Internal::new(config).unwrap();
    timeout(LONG_TIMEOUT * 2, internal.get("cookie", "sessionid=abc")).await.expect("a question that does not end")
}

/// An application without TLS that answers with these bytes, and then closes the connection or hangs.
async fn application(answer: impl Into<Vec<u8>>, hangs: Hangs) -> (Receiver, mpsc::UnboundedReceiver<String>) {
    let (answer, (heads, received)) = (answer.into(), mpsc::unbounded_channel());
    let receiver = Receiver::tcp(move |mut tcp, _| {
        let (answer, heads) = (answer.clone(), heads.clone());
        async move {
            let Some(request) = read_request(&mut tcp).await else { return };
            heads.send(request.head).unwrap();
            let _ = tcp.write_all(&answer).await;
            if matches!(hangs, Hangs::Afterwards) {
                read_request(&mut tcp).await;
            }
        }
    })
    .await;
    (receiver, received)
}

#[derive(Clone, Copy)]
enum Hangs {
    Never,
    Afterwards,
}

#[tokio::test]
async fn a_question_is_a_get_with_its_header_on_a_connection_of_its_own() {
    let (receiver, mut heads) = application(OK_RESPONSE, Hangs::Afterwards).await;
    let address = receiver.address;
    let internal = Internal::new(config(format!("http://{address}/who?a=b"))).unwrap();
    for _ in 0..2 {
        let answer = internal.get("cookie", "sessionid=a=\"b\"").await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"{}"[..]));
        let head = heads.recv().await.unwrap();
        let mut lines: Vec<_> = head.trim_end().lines().collect();
        assert_eq!(lines.remove(0), "GET /who?a=b HTTP/1.1");
        lines.sort_unstable();
        let host = format!("host: {address}");
        assert_eq!(
            lines,
            ["accept: application/json", "cookie: sessionid=a=\"b\"", host.as_str(), "user-agent: test-agent/1"]
        );
    }
    assert_eq!(receiver.accepted(), 2);
    receiver.all_closed().await;
}

#[tokio::test]
async fn https_is_verified_with_the_operators_authorities() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&["127.0.0.1"]), OK_RESPONSE).await;
    let trusting = InternalConfig { extra_ca_pem: Some(authority.pem().into_bytes()), ..config(receiver.url()) };
    assert_eq!(ask(trusting).await.unwrap().status, 200);
    assert!(matches!(ask(config(receiver.url())).await, Err(InternalError::Request(_))));
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let answer = "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n";
    let (receiver, mut heads) = application(answer, Hangs::Never).await;
    assert_eq!(ask(config(format!("http://{}/", receiver.address))).await.unwrap().status, 302);
    heads.recv().await.unwrap();
    assert_eq!(receiver.accepted(), 1);
}

#[tokio::test]
async fn an_answer_is_read_like_a_receiver_s() {
    let lines = |number: usize| (0..number).map(|line| format!("X-{line:05}: {line:021}\r\n")).collect::<String>();
    for (header, is_read) in [
        (lines(1_990), true),
        (lines(2_100), false),
        (format!("X-Long: {}\r\n", "x".repeat(60_000)), true),
        (format!("X-Long: {}\r\n", "x".repeat(200_000)), false),
        ("No Name: 1\r\nX: \u{7}\r\n".to_owned(), true),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: 2\r\n\r\n{{}}");
        let (receiver, _heads) = application(answer, Hangs::Never).await;
        let answer = ask(config(format!("http://{}/", receiver.address))).await;
        assert_eq!(answer.is_ok(), is_read, "{header:.20}: {:?}", answer.map(|answer| answer.status));
    }
}

#[tokio::test]
async fn one_deadline_is_over_the_head_and_the_body() {
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"] {
        let (receiver, _heads) = application(answer, Hangs::Afterwards).await;
        let short = InternalConfig { timeout: SHORT_TIMEOUT, ..config(format!("http://{}/", receiver.address)) };
        assert!(matches!(ask(short).await, Err(InternalError::Timeout(SHORT_TIMEOUT))), "{answer:?}");
        receiver.all_closed().await;
    }
}

#[tokio::test]
async fn at_most_64_kib_are_read() {
    for (length, fits) in [(65_536, true), (65_537, false)] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
        let (receiver, _heads) = application(answer, Hangs::Never).await;
        let answer = ask(config(format!("http://{}/", receiver.address))).await;
        match answer {
            Ok(answer) => assert!(fits && answer.body.len() == length),
            Err(error) => assert!(!fits && matches!(error, InternalError::TooLarge(_)), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_away_or_breaks_off_is_no_answer_and_its_error_tells_nothing_of_what_was_sent() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (half, _heads) = application("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", Hangs::Never).await;
    let (noise, _heads) = application("no HTTP\r\n\r\n", Hangs::Never).await;
    for address in [nobody, half.address, noise.address] {
        let error = ask(config(format!("http://{address}/"))).await.unwrap_err();
        assert!(matches!(error, InternalError::Request(_) | InternalError::Body(_)), "{error:?}");
        assert!(!format!("{error:?}").contains("abc"), "{error:?}");
    }
    let internal = Internal::new(config(format!("http://{nobody}/"))).unwrap();
    let error = internal.get("cookie", "sessionid=a\nb").await.unwrap_err();
    assert_eq!(error.to_string(), "the header cookie cannot be written");
}

#[test]
fn only_absolute_urls_of_http_and_https_are_asked() {
    for url in ["/who", "app", "ftp://app/", ""] {
        assert!(matches!(Internal::new(config(url.to_owned())), Err(EgressError::Url)), "{url}");
    }
}
