//! A connection that shows its exchanges what it reads, that fails when its peer does not read in time or answers without
//! end, and that gives an answer before the break that followed it.

use std::{
    io::{self, IoSlice},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::{
    connection_counts::{ConnectionCounts, Counted},
    exchange::Exchanges,
    failure_messages::is_broken,
};

/// The limit of what is read until a request is written, and of what is read after that, in bytes. An answer is shorter,
/// as far as it is used: its header is limited to 64 KiB, and 16 KiB of its body are read.
const MAX_ANSWER_BYTES: usize = 512 * 1024;

/// The limit of what is read while the peer is awaited to close a connection, in bytes.
const MAX_SURPLUS_BYTES: usize = 16 * 1024;

/// The time for a peer to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// The layers below, as far as they do more than to read and write.
pub(crate) trait Layers {
    /// Has this machine acknowledge soon what comes next.
    fn acknowledge(&self);

    /// Has the next flush tell the peer that nothing more will be written. The connection stays open.
    fn send_close_notify(&mut self);

    /// Reads from the lowest layer, where the peer's end is that of the connection.
    fn poll_read_lowest(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
}

/// Fails a write, a flush or a shutdown that does not end within the limit. Otherwise a receiver that answers without
/// reading the request could keep the connection and the request as long as it likes: hyper goes on writing, and no
/// request's deadline is left to end it.
///
/// Fails a read beyond [`MAX_ANSWER_BYTES`]. hyper's limit of a header does not count interim answers, and none counts the
/// zeros before the size of a chunk: a receiver could keep a thread busy with them until the request's deadline.
///
/// A receiver may answer without reading the request, and close: that breaks the next write, and hyper would not read
/// the answer. So a write that breaks succeeds, and the break is the error of the read that finds nothing more.
///
/// Lets the peer close a connection whose answer does not allow another request: a local port stays in use for a minute on
/// the side that closes first. A receiver that answers all requests so would use up the ports to its address.
pub(crate) struct Guarded<S> {
    inner: S,
    exchanges: Exchanges,
    limit: Duration,
    unflushed: Option<Pin<Box<Sleep>>>,
    broken: Option<io::Error>,
    has_written: bool,
    /// The number of bytes that were read since the latest request was written.
    read: usize,
    open: Option<Counted>,
    /// The end of the time for the peer to close.
    closing: Option<Pin<Box<Sleep>>>,
}

impl<S: Layers + AsyncWrite + Unpin> Guarded<S> {
    pub(crate) fn new(inner: S, limit: Duration, counts: &ConnectionCounts) -> Self {
        Self {
            inner,
            exchanges: Exchanges::opened(),
            limit,
            unflushed: None,
            broken: None,
            has_written: false,
            read: 0,
            open: Some(Arc::clone(&counts.open)),
            closing: None,
        }
    }

    /// Starts the clock when something has to wait, and fails when it has run out. What breaks counts as `done`.
    fn waited<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>, done: T) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if is_broken(error.kind()) => {
                self.broken = Some(error);
                Poll::Ready(Ok(done))
            }
            Poll::Ready(_) => polled,
            Poll::Pending => {
                self.inner.acknowledge();
                let clock = self.unflushed.get_or_insert_with(|| Box::pin(sleep(self.limit)));
                clock.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Waits until the peer has closed the connection, if that is worth it. The connection no longer counts.
    fn poll_close_by_peer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.open.take().is_some() {
            if self.exchanges.may_be_followed() {
                self.inner.send_close_notify();
                self.closing = Some(Box::pin(sleep(CLOSE_TIMEOUT)));
                self.read = 0;
            }
            self.exchanges.close();
        }
        if let Some(time) = &mut self.closing
            && time.as_mut().poll(cx).is_pending()
            && ready!(Pin::new(&mut self.inner).poll_flush(cx)).is_ok()
        {
            let mut surplus = [0; 1024];
            while let Ok(read @ 1..) = ready!(self.inner.poll_read_lowest(cx, &mut surplus)) {
                self.read += read;
                if self.read > MAX_SURPLUS_BYTES {
                    break;
                }
            }
        }
        self.closing = None;
        Poll::Ready(())
    }
}

impl<S> Drop for Guarded<S> {
    fn drop(&mut self) {
        self.exchanges.close();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let read = &buf.filled()[before..];
        if !read.is_empty() {
            self.read += read.len();
            if self.read > MAX_ANSWER_BYTES {
                return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
            }
            self.exchanges.read(read);
        } else if polled.is_ready()
            && let Some(error) = self.broken.take()
        {
            return Poll::Ready(Err(error));
        }
        polled
    }
}

impl<S: Layers + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.has_written = true;
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.waited(cx, polled, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.waited(cx, polled, bufs.iter().map(|buf| buf.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        if polled.is_ready() {
            self.unflushed = None;
            if mem::take(&mut self.has_written) {
                self.read = 0;
                self.inner.acknowledge();
            }
        }
        self.waited(cx, polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_close_by_peer(cx));
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.waited(cx, polled, ())
    }
}

impl<S: Connection> Connection for Guarded<S> {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.exchanges.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn, pin::pin};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    thread_local! {
        static ACKNOWLEDGED: Cell<usize> = const { Cell::new(0) };
    }

    impl Layers for DuplexStream {
        fn acknowledge(&self) {
            ACKNOWLEDGED.set(ACKNOWLEDGED.get() + 1);
        }

        fn send_close_notify(&mut self) {}

        fn poll_read_lowest(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(0))
        }
    }

    #[tokio::test]
    async fn what_the_peer_sends_is_acknowledged_soon_after_each_flush_and_while_a_write_waits() {
        let (near, mut far) = duplex(64);
        let mut stream = Guarded::new(near, TIMEOUT, &ConnectionCounts::default());
        stream.write_all(&[0; 64]).await.unwrap();
        assert_eq!(ACKNOWLEDGED.get(), 0);
        for _ in 0..2 {
            stream.flush().await.unwrap();
            assert_eq!(ACKNOWLEDGED.get(), 1, "nothing was written since");
        }
        assert!(poll_fn(|cx| Poll::Ready(pin!(stream.write_all(&[0; 1])).poll(cx).is_pending())).await);
        assert_eq!(ACKNOWLEDGED.get(), 2);
        far.read_exact(&mut [0; 64]).await.unwrap();
    }

    #[tokio::test]
    async fn what_came_before_a_break_is_read_and_then_the_break() {
        let (near, mut far) = duplex(64);
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let mut stream = Guarded::new(near, TIMEOUT, &ConnectionCounts::default());
        stream.write_all(&[0; 1000]).await.unwrap();
        let mut answer = Vec::new();
        let error = stream.read_to_end(&mut answer).await.unwrap_err();
        assert_eq!((answer.as_slice(), error.kind()), (&b"answer"[..], io::ErrorKind::BrokenPipe));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_a_little_now_and_then_gains_no_time() {
        let (near, mut far) = duplex(64);
        let drip = tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let started = Instant::now();
        let error = Guarded::new(near, TIMEOUT, &ConnectionCounts::default()).write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (io::ErrorKind::TimedOut, TIMEOUT));
        drip.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn each_flush_starts_anew() {
        let (near, mut far) = duplex(64);
        let reader = tokio::spawn(async move {
            let mut request = [0; 100];
            for _ in 0..3 {
                sleep(TIMEOUT * 2 / 3).await;
                far.read_exact(&mut request).await.unwrap();
            }
        });
        let mut stream = Guarded::new(near, TIMEOUT, &ConnectionCounts::default());
        for _ in 0..3 {
            stream.write_all(&[0; 100]).await.unwrap();
            stream.flush().await.unwrap();
        }
        reader.await.unwrap();
    }
}
