//! The connection pool.

use std::{sync::Arc, time::Duration};

use domain::OutcomeClass::{Protocol, Status, Success, Timeout};
use egress::EgressConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::JoinSet,
    time,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Client, LONG_TIMEOUT, SHORT_TIMEOUT,
    authority::Authority,
    config, egress, post,
    receiver::{Receiver, read_request},
};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];
const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CLOSING_RESPONSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// The answer of servers to a connection that was idle for too long. Some leave out `Connection: close`.
const IDLE_RESPONSE: &str = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_that_the_receiver_closes_between_two_posts_is_not_a_failure() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        peer.send(OK_RESPONSE).await;
        let _ = peer.stream.shutdown().await;
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    for _ in 0..20 {
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    assert_eq!(receiver.accepted(), 20);
}

#[tokio::test]
async fn a_reused_connection_that_breaks_before_an_answer_is_replaced() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        peer.send(OK_RESPONSE).await;
        // The first connection takes a second request and breaks.
        if peer.request().await.is_some() && peer.number > 0 {
            peer.send(OK_RESPONSE).await;
        }
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    for _ in 0..2 {
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    let received = receiver.received();
    assert_eq!((received.len(), receiver.accepted()), (3, 2));
    assert_eq!((&received[1].head, &received[1].body), (&received[2].head, &received[2].body));
}

#[tokio::test]
async fn a_408_on_a_reused_connection_is_an_idle_close_and_the_post_is_repeated() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        // Each connection takes one post, and then is idle for too long. Its late answer must serve no later post.
        peer.request().await;
        peer.send(OK_RESPONSE).await;
        if peer.request().await.is_some() {
            peer.send(IDLE_RESPONSE).await;
            while peer.request().await.is_some() {
                peer.send("HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    for _ in 0..6 {
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    let received = receiver.received();
    // Posts on pooled connections: three first ones, and three that are repeated on fresh ones.
    assert_eq!((received.len(), receiver.accepted()), (9, 6));
    assert_eq!((&received[1].head, &received[1].body), (&received[2].head, &received[2].body));
}

/// The progress of a receiver's second connection.
#[derive(Default)]
struct Second {
    accepted: Notify,
    is_superfluous: Notify,
    open: Notify,
}

/// Serves connections of which the second is opened for a post that the first carries, and is closed at its own first
/// request, after these bytes.
async fn serve(mut tcp: TcpStream, number: usize, tls: TlsAcceptor, second: Arc<Second>, last: &str) {
    if number == 1 {
        second.accepted.notify_one();
        second.is_superfluous.notified().await;
    }
    let Ok(mut stream) = tls.accept(&mut tcp).await else { return };
    if number == 1 {
        second.open.notify_one();
        read_request(&mut stream).await;
        let _ = stream.write_all(last.as_bytes()).await;
        return;
    }
    read_request(&mut stream).await;
    if number == 0 {
        second.accepted.notified().await;
        stream.write_all(OK_RESPONSE.as_bytes()).await.unwrap();
        read_request(&mut stream).await;
        second.is_superfluous.notify_one();
        second.open.notified().await;
    }
    stream.write_all(CLOSING_RESPONSE.as_bytes()).await.unwrap();
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn a_connection_that_was_opened_ahead_may_go_stale_without_a_request() {
    let authority = Authority::new();
    for last in ["", IDLE_RESPONSE] {
        let (acceptor, second) = (authority.acceptor(&LOCAL_ADDRESSES), Arc::<Second>::default());
        let receiver =
            Receiver::tcp(move |tcp, number| serve(tcp, number, acceptor.clone(), Arc::clone(&second), last)).await;
        let egress = egress(&authority, LONG_TIMEOUT);
        let (one, other) = tokio::join!(egress.post(post(&receiver.url())), egress.post(post(&receiver.url())));
        assert_eq!((one.class, other.class, receiver.accepted()), (Success, Success, 2));
        let answer = egress.post(post(&receiver.url())).await;
        assert_eq!((answer.class, answer.error, receiver.accepted()), (Success, None, 3), "{last:?}");
    }
}

#[tokio::test]
async fn a_post_is_repeated_once_and_a_408_on_a_fresh_connection_counts() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        if peer.number == 0 {
            peer.request().await;
            peer.send(OK_RESPONSE).await;
        }
        while peer.request().await.is_some() && peer.send(IDLE_RESPONSE).await {}
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    let answer = egress.post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Status, Some(408)));
    assert_eq!((receiver.received().len(), receiver.accepted()), (3, 2));
    let fresh = Client::new(config(&authority, LONG_TIMEOUT)).post(post(&receiver.url())).await;
    assert_eq!((fresh.class, fresh.status), (Status, Some(408)));
    assert_eq!((receiver.received().len(), receiver.accepted()), (4, 3));
}

#[tokio::test]
async fn a_post_that_is_repeated_after_a_408_has_one_deadline() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        if peer.number == 0 {
            peer.send(OK_RESPONSE).await;
            peer.request().await;
            peer.send(IDLE_RESPONSE).await;
        }
        peer.gone().await;
    })
    .await;
    let egress = egress(&authority, SHORT_TIMEOUT);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    let answer = egress.post(post(&receiver.url())).await;
    assert_eq!((answer.class, answer.status), (Timeout, None));
    assert!(answer.elapsed >= SHORT_TIMEOUT && answer.elapsed < SHORT_TIMEOUT * 3 / 2, "{:?}", answer.elapsed);
    receiver.all_closed().await;
}

#[tokio::test]
async fn what_comes_after_an_answer_answers_no_other_post() {
    let authority = Authority::new();
    let late = "HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n";
    for surplus in [
        format!("HTTP/1.1 204 No Content\r\n\r\nnull{late}"),
        format!("HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nnull{late}"),
        format!("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{late}"),
        format!("{OK_RESPONSE} and more{late}"),
        format!("{OK_RESPONSE}\r\n{late}"),
        format!("{OK_RESPONSE}{late}"),
    ] {
        let text = surplus.clone();
        let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| {
            let text = text.clone();
            async move { while peer.request().await.is_some() && peer.send(&text).await {} }
        })
        .await;
        let egress = egress(&authority, LONG_TIMEOUT);
        for _ in 0..20 {
            let answer = egress.post(post(&receiver.url())).await;
            assert_eq!((answer.class, answer.error), (Success, None), "{surplus:?}");
        }
        assert_eq!((receiver.received().len(), receiver.accepted()), (20, 20), "{surplus:?}");
    }
}

/// A whole answer, as what follows another one.
const LATE_RESPONSE: &str = "HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n";

/// Answers the first request of each connection with this, and any further one with [`LATE_RESPONSE`].
async fn late(authority: &Authority, first: &'static str) -> Receiver {
    Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
        peer.request().await;
        peer.send(first).await;
        while peer.request().await.is_some() && peer.send(LATE_RESPONSE).await {}
    })
    .await
}

#[tokio::test]
async fn a_connection_whose_answer_has_no_body_by_its_status_is_not_used_again() {
    let authority = Authority::new();
    for (answer, class) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", Success),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", Success),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n", Success),
        ("HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", Success),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", Status),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Success),
    ] {
        let receiver = late(&authority, answer).await;
        let egress = egress(&authority, LONG_TIMEOUT);
        for _ in 0..3 {
            assert_eq!(egress.post(post(&receiver.url())).await.class, class, "{answer:?}");
        }
        assert_eq!((receiver.received().len(), receiver.accepted()), (3, 3), "{answer:?}");
        receiver.all_closed().await;
    }
}

/// The number of this machine's connections to a receiver that hold a local port for a minute.
fn in_time_wait(receiver: &Receiver) -> usize {
    let to = format!("{:04X}", receiver.address.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_held = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|peer| peer.ends_with(&to)) && fields.next() == Some("06")
    };
    sockets.lines().filter(is_held).count()
}

#[tokio::test]
async fn the_receiver_closes_a_connection_that_is_not_used_again() {
    let authority = Authority::new();
    let receiver = late(&authority, "HTTP/1.1 204 No Content\r\n\r\n").await;
    let egress = egress(&authority, LONG_TIMEOUT);
    for _ in 0..20 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    receiver.all_closed().await;
    assert_eq!((receiver.accepted(), in_time_wait(&receiver)), (20, 0));
}

#[tokio::test]
async fn a_receiver_that_does_not_close_keeps_a_connection_for_a_moment_and_no_post() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        let answered = time::Instant::now();
        peer.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        while peer.stream.get_mut().0.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        assert!(answered.elapsed() >= Duration::from_millis(250));
    })
    .await;
    let (egress, started) = (egress(&authority, LONG_TIMEOUT), time::Instant::now());
    for _ in 0..40 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    assert!(started.elapsed() < 40 * Duration::from_millis(250));
    receiver.all_closed().await;
    assert_ne!(in_time_wait(&receiver), 0, "they are seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn posts_that_wait_for_a_connection_do_not_take_one_whose_answer_has_no_body() {
    let authority = Authority::new();
    let receiver = late(&authority, "HTTP/1.1 204 No Content\r\n\r\n").await;
    let egress = Arc::new(egress(&authority, LONG_TIMEOUT));
    let mut posts = JoinSet::new();
    for _ in 0..32 {
        let (egress, url) = (Arc::clone(&egress), receiver.url());
        posts.spawn(async move {
            for _ in 0..8 {
                let answer = egress.post(post(&url)).await;
                assert_eq!((answer.class, answer.status, answer.error), (Success, Some(204), None));
            }
        });
    }
    posts.join_all().await;
    assert_eq!(receiver.received().len(), 256);
}

#[tokio::test]
async fn what_is_no_answer_on_a_reused_connection_is_replaced_once() {
    let authority = Authority::new();
    for surplus in ["null", "Hello", "\r\n{\"a\": 1}", "<html>HTTP/1.1 200 OK\r\n\r\n", "HTTP/2 200\r\n\r\n"] {
        let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
            peer.request().await;
            peer.send(if peer.number < 3 { OK_RESPONSE } else { surplus }).await;
            peer.request().await;
            peer.send(surplus).await;
        })
        .await;
        let egress = egress(&authority, LONG_TIMEOUT);
        // The second post is repeated. So is the fourth, and its fresh connection gives no answer either.
        for (class, posts) in [(Success, 1), (Success, 3), (Success, 4), (Protocol, 6)] {
            let answer = egress.post(post(&receiver.url())).await;
            assert_eq!((answer.class, receiver.received().len()), (class, posts), "{surplus:?}: {:?}", answer.error);
        }
        assert_eq!(receiver.accepted(), 4);
    }
}

#[tokio::test]
async fn a_reused_connection_that_breaks_in_an_answer_is_a_failure() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        peer.request().await;
        peer.send(OK_RESPONSE).await;
        peer.request().await;
        peer.send("HTTP/1.1 2").await;
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    assert_eq!(egress.post(post(&receiver.url())).await.class, Protocol);
    assert_eq!((receiver.received().len(), receiver.accepted()), (2, 1));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read_to_its_end_for_the_sake_of_reuse() {
    let authority = Authority::new();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), text).await;
    let egress = egress(&authority, LONG_TIMEOUT);
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
    let receiver = Receiver::answering(authority.acceptor(&names), OK_RESPONSE).await;
    let idle_timeout = Duration::from_millis(200);
    let egress = Client::new(EgressConfig { idle_timeout, ..config(&authority, LONG_TIMEOUT) });
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
    let receiver = Receiver::answering(authority.acceptor(&names), OK_RESPONSE).await;
    let idle_timeout = Duration::from_secs(120);
    let egress = Client::new(EgressConfig { idle_timeout, max_idle: 10, ..config(&authority, LONG_TIMEOUT) });
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
async fn a_connection_that_is_used_all_the_time_is_replaced_within_five_minutes() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), OK_RESPONSE).await;
    for idle_timeout in [Duration::from_secs(60), Duration::from_secs(3600)] {
        let (egress, before) =
            (Client::new(EgressConfig { idle_timeout, ..config(&authority, LONG_TIMEOUT) }), receiver.accepted());
        let mut opened = Vec::new();
        for _ in 0..=7 {
            assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
            opened.push(receiver.accepted() - before);
            time::pause();
            time::advance(Duration::from_secs(50)).await;
            time::resume();
        }
        assert_eq!((opened[2], opened[6]), (1, 2), "{opened:?}");
    }
}

#[tokio::test]
async fn no_more_unused_connections_to_one_host_are_kept_than_configured() {
    let authority = Authority::new();
    let receiver = Receiver::answering(authority.acceptor(&LOCAL_ADDRESSES), OK_RESPONSE).await;
    let egress = Client::new(EgressConfig { max_idle_per_host: 0, ..config(&authority, LONG_TIMEOUT) });
    for _ in 0..3 {
        assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
    }
    assert_eq!(receiver.accepted(), 3);
    receiver.all_closed().await;
}
