//! Connects that stall.

use domain::OutcomeClass::Success;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::Instant,
};

use crate::{
    LONG_TIMEOUT, SHORT_TIMEOUT,
    authority::Authority,
    egress, post,
    receiver::{Receiver, read_request},
};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];
const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Serves the first connections, and stalls the TLS handshakes of the others.
async fn serving(authority: &Authority, served: usize) -> Receiver {
    let acceptor = authority.acceptor(&LOCAL_ADDRESSES);
    Receiver::tcp(move |mut tcp, number| {
        let acceptor = acceptor.clone();
        async move {
            if number >= served {
                while tcp.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                return;
            }
            let Ok(mut stream) = acceptor.accept(&mut tcp).await else { return };
            while read_request(&mut stream).await.is_some() && stream.write_all(OK_RESPONSE.as_bytes()).await.is_ok() {}
        }
    })
    .await
}

#[tokio::test]
async fn an_attempt_beyond_the_maximum_of_connects_has_no_socket_and_no_other_receiver_waits() {
    let authority = Authority::new();
    let (stalling, good) = (serving(&authority, 0).await, serving(&authority, 1).await);
    let egress = egress(&authority, LONG_TIMEOUT);
    let mut posts = JoinSet::new();
    for _ in 0..300 {
        let (egress, post) = (egress.0.clone(), post(&stalling.url()));
        posts.spawn(async move { egress.post(post).await });
    }
    stalling.open_at_least(128).await;
    for _ in 0..20 {
        assert_eq!(egress.post(post(&good.url())).await.class, Success);
    }
    assert_eq!(stalling.most_open(), 128);
    drop(posts);
    stalling.all_closed().await;
}

#[tokio::test]
async fn a_probe_ends_in_time_though_attempts_have_all_connects() {
    let authority = Authority::new();
    let stalling = serving(&authority, 0).await;
    let (egress, post) = (egress(&authority, SHORT_TIMEOUT), post(&stalling.url()));
    let mut posts = JoinSet::new();
    for _ in 0..128 {
        let (egress, post) = (egress.0.clone(), post.clone());
        posts.spawn(async move { egress.post(post).await });
    }
    stalling.open_at_least(128).await;
    let started = Instant::now();
    assert_eq!(egress.0.reaches(&post.url).await, Some(false));
    assert!(started.elapsed() < SHORT_TIMEOUT * 5 / 4, "{:?}", started.elapsed());
}
