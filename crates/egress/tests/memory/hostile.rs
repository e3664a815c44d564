//! Hostile receivers.

use std::{future::pending, time::Duration};

use domain::{
    OutcomeClass::{Protocol, Status, Success},
    PostResult,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};
use tokio_rustls::server::TlsStream;

use crate::is_timeout;

type Tls = TlsStream<TcpStream>;

/// What a receiver does once it has read the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hostility {
    NeverAnswers,
    DripsItsHeader,
    DripsItsBody,
    NeverEndsItsBody,
    ChunksOfOneByte,
    SendsAHugeHeaderLine,
    SendsManyHeaderLines,
    EndsItsManyHeaderLines,
    SendsInterimAnswers,
    SendsAHugeStatusLine,
    SendsABomb,
    ClosesInItsBody,
    Resets,
    TalksNonsense,
}
use Hostility::{
    ChunksOfOneByte, ClosesInItsBody, DripsItsBody, DripsItsHeader, EndsItsManyHeaderLines, NeverAnswers,
    NeverEndsItsBody, Resets, SendsABomb, SendsAHugeHeaderLine, SendsAHugeStatusLine, SendsInterimAnswers,
    SendsManyHeaderLines, TalksNonsense,
};

const SHORT_TIMEOUT: Duration = Duration::from_millis(500);
const LONG_TIMEOUT: Duration = Duration::from_secs(10);
const HUNDRED_MIB: usize = 100 << 20;

impl Hostility {
    pub(crate) const ALL: [Self; 14] = [
        NeverAnswers,
        DripsItsHeader,
        DripsItsBody,
        NeverEndsItsBody,
        ChunksOfOneByte,
        SendsAHugeHeaderLine,
        SendsManyHeaderLines,
        EndsItsManyHeaderLines,
        SendsInterimAnswers,
        SendsAHugeStatusLine,
        SendsABomb,
        ClosesInItsBody,
        Resets,
        TalksNonsense,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hostility| hostility.name() == name)
    }

    /// The client's deadline. It is short for what only the deadline ends.
    pub(crate) const fn patience(self) -> Duration {
        match self {
            NeverAnswers | DripsItsHeader => SHORT_TIMEOUT,
            _ => LONG_TIMEOUT,
        }
    }

    /// Returns the bytes that the client may hold. Each header line costs the parser and the map of headers more than
    /// it has bytes, for a moment: the header is dropped before the body is read.
    pub(crate) const fn most_held(self) -> usize {
        match self {
            EndsItsManyHeaderLines => 768 * 1024,
            _ => 512 * 1024,
        }
    }

    pub(crate) fn judge(self, answer: &PostResult) {
        let good = match self {
            NeverAnswers | DripsItsHeader => is_timeout(answer) && answer.elapsed >= SHORT_TIMEOUT,
            DripsItsBody => answer.class == Success && answer.elapsed < SHORT_TIMEOUT && answer.head.starts_with(b"xx"),
            // The client reads a body for a moment only.
            NeverEndsItsBody | ChunksOfOneByte => answer.class == Success && [b'x'; 1024].starts_with(&answer.head),
            EndsItsManyHeaderLines => answer.class == Success,
            SendsABomb => answer.class == Success && bomb()[..1024].starts_with(&answer.head),
            ClosesInItsBody => (answer.class, answer.status, answer.head.as_slice()) == (Status, Some(500), b"abc"),
            SendsAHugeHeaderLine | SendsManyHeaderLines | SendsAHugeStatusLine | SendsInterimAnswers | Resets
            | TalksNonsense => answer.class == Protocol,
        };
        assert!(good, "{self:?}: {answer:?}");
    }

    pub(crate) async fn serve(self, mut tls: Tls) {
        let mut request = vec![0; 64 * 1024 + 1000];
        let mut read = 0;
        while !has_ended(&request[..read]) {
            match tls.read(&mut request[read..]).await {
                Ok(more) if more > 0 => read += more,
                _ => return,
            }
        }
        drop(request);
        let ok = "HTTP/1.1 200 OK\r\n";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        match self {
            NeverAnswers => pending().await,
            DripsItsHeader => drip(&mut tls, "HTTP/1.1 200 OK\r\nX-Slow: ").await,
            DripsItsBody => drip(&mut tls, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await,
            NeverEndsItsBody => flood(&mut tls, "HTTP/1.1 200 OK\r\n\r\n", &"x".repeat(8192), usize::MAX).await,
            ChunksOfOneByte => flood(&mut tls, chunked, "1\r\nx\r\n", usize::MAX).await,
            SendsAHugeHeaderLine => flood(&mut tls, &format!("{ok}X-A: "), &"x".repeat(8192), HUNDRED_MIB).await,
            SendsManyHeaderLines => flood(&mut tls, ok, &"X-A: b\r\n".repeat(1024), HUNDRED_MIB).await,
            EndsItsManyHeaderLines => {
                let lines: String = (0..1999).map(|line| format!("X-{line:05}: {line:021}\r\n")).collect();
                let _ = tls.write_all(format!("{ok}{lines}Content-Length: 0\r\n\r\n").as_bytes()).await;
            }
            SendsInterimAnswers => {
                flood(&mut tls, "", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", usize::MAX).await;
            }
            SendsAHugeStatusLine => flood(&mut tls, "HTTP/1.1 200 ", &"O".repeat(8192), HUNDRED_MIB).await,
            SendsABomb => {
                let bomb = bomb();
                let head = format!("{ok}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len());
                let _ = tls.write_all(&[head.as_bytes(), &bomb].concat()).await;
                pending::<()>().await;
            }
            ClosesInItsBody => {
                let _ = tls.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nabc").await;
            }
            Resets => {
                let _ = tls.write_all(b"HTTP/1.1 2").await;
                let _ = tls.flush().await;
                tls.get_ref().0.set_zero_linger().unwrap();
            }
            TalksNonsense => {
                let _ = tls.write_all(b"\0\xff\x16\x03 200 \r\r\n\n\r\n\r\n").await;
            }
        }
        let _ = tls.flush().await;
    }
}

fn has_ended(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    body.len() >= length
}

/// Sends a byte every 20 milliseconds.
async fn drip(tls: &mut Tls, head: &str) {
    let mut alive = tls.write_all(head.as_bytes()).await.is_ok();
    while alive && tls.flush().await.is_ok() {
        sleep(Duration::from_millis(20)).await;
        alive = tls.write_all(b"x").await.is_ok();
    }
}

async fn flood(tls: &mut Tls, head: &str, piece: &str, most: usize) {
    let mut sent = 0;
    let mut alive = tls.write_all(head.as_bytes()).await.is_ok();
    while alive && sent < most {
        alive = tls.write_all(piece.as_bytes()).await.is_ok();
        sent += piece.len();
    }
}

/// 16 KiB that inflate to 2.6 MB of zeros: gzip around one block of fixed codes, which is a zero and then "258 times
/// the byte before" again and again.
fn bomb() -> Vec<u8> {
    let mut bits = vec![true, true, false];
    let mut code = |value: u32, length: u32| bits.extend((0..length).rev().map(|bit| value >> bit & 1 == 1));
    code(0b0011_0000, 8);
    for _ in 0..10_000 {
        code(0b1100_0101, 8);
        code(0, 5);
    }
    code(0, 7);
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(bits.chunks(8).map(byte));
    bytes.extend([0; 8]);
    bytes
}
