//! Answers that begin before the request has ended, and interim ones (1xx).

use domain::OutcomeClass::{Protocol, Success};
use egress::Post;
use tokio::io::AsyncReadExt;

use crate::{
    LONG_TIMEOUT,
    authority::Authority,
    egress, post,
    receiver::{Peer, Receiver},
};

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];
const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CONTINUE_RESPONSE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// The length of a body that no buffers hold before the receiver reads. So it is still being written when the
/// answer to its header comes.
const BODY_BYTES: usize = 16 << 20;

fn long_post(receiver: &Receiver) -> Post {
    Post { body: vec![b'x'; BODY_BYTES].into(), ..post(&receiver.url()) }
}

/// Answers a request's header, and then reads so much of its body.
async fn answer_early(peer: &mut Peer, answer: &str, mut length: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = peer.stream.read_u8().await else { return };
        head.push(byte);
    }
    peer.send(answer).await;
    let mut body = vec![0; 1 << 16];
    while length > 0 {
        let most = length.min(body.len());
        match peer.stream.read(&mut body[..most]).await {
            Ok(read) if read > 0 => length -= read,
            _ => return,
        }
    }
}

#[tokio::test]
async fn a_post_that_got_any_byte_of_an_answer_is_not_repeated() {
    let authority = Authority::new();
    for begin in [
        CONTINUE_RESPONSE,
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2",
        "HTTP/1.1 1",
        "H",
    ] {
        for earlier in [0, 1] {
            let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| async move {
                for _ in 0..earlier {
                    peer.request().await;
                    peer.send(OK_RESPONSE).await;
                }
                answer_early(&mut peer, begin, BODY_BYTES - 1).await;
            })
            .await;
            let egress = egress(&authority, LONG_TIMEOUT);
            for _ in 0..earlier {
                assert_eq!(egress.post(post(&receiver.url())).await.class, Success);
            }
            let answer = egress.post(long_post(&receiver)).await;
            let (posts, error) = (receiver.accepted(), answer.error);
            assert_eq!((answer.class, posts), (Protocol, 1), "{begin:?} after {earlier} posts: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_with_an_interim_answer_is_not_used_again() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        answer_early(&mut peer, CONTINUE_RESPONSE, BODY_BYTES).await;
        peer.send(OK_RESPONSE).await;
        peer.gone().await;
    })
    .await;
    let egress = egress(&authority, LONG_TIMEOUT);
    for _ in 0..2 {
        let answer = egress.post(long_post(&receiver)).await;
        assert_eq!((answer.class, answer.error), (Success, None));
    }
    assert_eq!(receiver.accepted(), 2);
    receiver.all_closed().await;
}

#[tokio::test]
async fn interim_answers_without_end_end_a_post_whose_body_nobody_reads() {
    let authority = Authority::new();
    let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), |mut peer| async move {
        answer_early(&mut peer, CONTINUE_RESPONSE, 0).await;
        while peer.send(CONTINUE_RESPONSE.repeat(100)).await {}
    })
    .await;
    let answer = egress(&authority, LONG_TIMEOUT).post(long_post(&receiver)).await;
    assert!(answer.error.unwrap().ends_with("the answer is too long"));
    assert_eq!(answer.class, Protocol);
}
