//! A request on its connection: whether the connection was reused, and what came since the request began.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request,
    body::{Body, Frame, SizeHint},
    http::Extensions,
};
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, capture_connection};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    connection_counts::{ConnectionCounts, Counted},
    status_line::StatusLine,
};

/// A request and its answer on a connection, as the sender of the request sees them.
#[derive(Clone)]
pub(crate) struct Exchange {
    progress: Arc<Mutex<Progress>>,
    /// The request's connection, once there is one.
    pub(crate) connection: CaptureConnection,
}

struct Progress {
    counts: ConnectionCounts,
    built_at: Instant,
    /// True if the connection had an earlier request, or was open before this one was built.
    is_reused: bool,
    /// The bytes that were read since the request began.
    answer: StatusLine,
    waiting: Option<Counted>,
}

/// The exchanges of a connection. hyper-util keeps it with the connection.
///
/// A connection may be older than its first request: hyper-util opens it for a request that another connection then
/// carries, and keeps it for a later request.
#[derive(Clone)]
pub(crate) struct Exchanges {
    opened_at: Instant,
    /// Each holds its connection, which holds this. [`Exchanges::close`] ends the cycle.
    latest: Arc<Mutex<Option<Exchange>>>,
}

/// A request's body. hyper reads it before it writes the first byte of the request, and then the request begins.
///
/// Writes and reads alone do not show where a request begins: an interim answer may come between the writes of one
/// request, and a whole answer before the last of them.
pub(crate) struct ExchangeBody {
    bytes: Full<Bytes>,
    exchange: Option<Exchange>,
}

impl Exchange {
    /// Begins to observe a request that is not sent yet.
    pub(crate) fn of(mut request: Request<Full<Bytes>>, counts: &ConnectionCounts) -> (Request<ExchangeBody>, Self) {
        let connection = capture_connection(&mut request);
        let progress = Arc::new(Mutex::new(Progress {
            counts: counts.clone(),
            built_at: Instant::now(),
            is_reused: false,
            answer: StatusLine::default(),
            waiting: None,
        }));
        let exchange = Self { progress, connection };
        (request.map(|bytes| ExchangeBody { bytes, exchange: Some(exchange.clone()) }), exchange)
    }

    /// Returns whether the connection was reused, and no answer has begun since the request did.
    pub(crate) fn is_reused_and_unanswered(&self) -> bool {
        let progress = self.progress.lock();
        progress.is_reused && !progress.answer.has_begun()
    }

    /// Returns whether the connection was reused.
    pub(crate) fn is_reused(&self) -> bool {
        self.progress.lock().is_reused
    }

    /// Notes that the request no longer waits for its answer.
    pub(crate) fn end(&self) {
        self.progress.lock().waiting = None;
    }

    fn begin(&self) {
        if let Some(exchanges) = self.connection.connection_metadata().as_ref().and_then(Exchanges::of) {
            exchanges.begin(self);
        }
    }

    /// Adds what was read. Whatever may follow the answer must not count as the next request's answer, so the connection
    /// gets no further request. It is marked before hyper sees the answer, and so before it returns to the pool.
    fn read(&self, bytes: &[u8]) {
        let mut progress = self.progress.lock();
        progress.answer.read(bytes);
        if progress.answer.may_be_followed()
            && let Some(connection) = self.connection.connection_metadata().as_ref()
        {
            connection.poison();
        }
    }
}

impl Exchanges {
    /// Those of a connection that is open now.
    pub(crate) fn opened() -> Self {
        Self { opened_at: Instant::now(), latest: Arc::default() }
    }

    /// Those of a connection of the pool.
    pub(crate) fn of(connection: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connection.get_extras(&mut extras);
        extras.remove()
    }

    /// The time since the connection was opened.
    pub(crate) fn age(&self) -> Duration {
        self.opened_at.elapsed()
    }

    fn begin(&self, next: &Exchange) {
        let earlier = self.latest.lock().replace(next.clone());
        let mut progress = next.progress.lock();
        progress.is_reused = earlier.is_some() || self.opened_at < progress.built_at;
        progress.waiting = Some(Arc::clone(&progress.counts.waiting));
    }

    /// Notes what was read.
    pub(crate) fn read(&self, bytes: &[u8]) {
        if let Some(latest) = &*self.latest.lock() {
            latest.read(bytes);
        }
    }

    /// Returns whether further bytes may follow the latest answer.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.latest.lock().as_ref().is_some_and(|latest| latest.progress.lock().answer.may_be_followed())
    }

    /// Notes that the connection is closed, or no longer used.
    pub(crate) fn close(&self) {
        if let Some(latest) = self.latest.lock().take() {
            latest.end();
        }
    }
}

impl Body for ExchangeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(exchange) = self.exchange.take() {
            exchange.begin();
        }
        Pin::new(&mut self.bytes).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(counts: &ConnectionCounts) -> Exchange {
        Exchange::of(Request::new(Full::new(Bytes::from_static(b"body"))), counts).1
    }

    #[test]
    fn whatever_is_read_answers_the_request_that_began_last() {
        let counts = ConnectionCounts::default();
        let (first, second) = (exchange(&counts), exchange(&counts));
        let connection = Exchanges::opened();
        connection.read(b"HTTP/1.1 200 OK");
        for request in [&first, &second] {
            assert!(!request.is_reused_and_unanswered() && !request.is_reused());
        }
        connection.begin(&first);
        connection.read(b"HTTP/1.1 200 OK");
        assert!(!first.is_reused_and_unanswered() && !first.is_reused());
        connection.begin(&second);
        assert!(second.is_reused_and_unanswered() && second.is_reused());
        connection.read(b"HTTP/1.1 200 OK");
        assert!(!second.is_reused_and_unanswered() && second.is_reused());
        assert!(!first.is_reused_and_unanswered());
    }

    #[test]
    fn a_connection_that_was_open_before_its_first_request_was_built_is_reused() {
        let counts = ConnectionCounts::default();
        let request = exchange(&counts);
        let built_at = request.progress.lock().built_at;
        for (opened_at, is_reused) in [
            (built_at.checked_sub(Duration::from_nanos(1)).unwrap(), true),
            (built_at, false),
            (built_at + Duration::from_nanos(1), false),
        ] {
            Exchanges { opened_at, latest: Arc::default() }.begin(&request);
            assert_eq!(request.is_reused_and_unanswered(), is_reused);
            assert_eq!(request.is_reused(), is_reused);
        }
    }

    #[test]
    fn a_connection_is_unused_but_between_a_request_and_its_answer() {
        let counts = ConnectionCounts::default();
        let (one, other) = (Exchanges::opened(), Exchanges::opened());
        let open = [Arc::clone(&counts.open), Arc::clone(&counts.open)];
        assert_eq!(counts.unused(), 2);
        let first = exchange(&counts);
        one.begin(&first);
        assert_eq!(counts.unused(), 1);
        // An interim answer is not the answer.
        one.read(b"HTTP/1.1 103 ");
        assert_eq!(counts.unused(), 1);
        first.end();
        first.end();
        assert_eq!(counts.unused(), 2);
        let second = exchange(&counts);
        other.begin(&second);
        assert_eq!(counts.unused(), 1);
        other.close();
        assert_eq!(counts.unused(), 2);
        drop(open);
        assert_eq!(counts.unused(), 0);
    }
}
