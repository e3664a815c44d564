//! The stream that lapin reads, with or without TLS, and the runtime whose streams are of this type.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures_util::{AsyncRead, AsyncWrite, Stream};
use lapin::tcp::AsyncTcpStream;

use crate::repair::frames::Frames;

/// The stream of tokio, with or without TLS.
type Inner = AsyncTcpStream<<Tokio as Reactor>::TcpStream>;

/// Repairs what is read, and writes what is written.
pub(crate) struct RepairedStream {
    inner: Inner,
    frames: Frames,
}

impl RepairedStream {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner, frames: Frames::default() }
    }
}

impl AsyncRead for RepairedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let Self { inner, frames } = self.get_mut();
        let mut inner = Pin::new(inner);
        loop {
            let passed = frames.pass(room);
            if passed > 0 || room.is_empty() {
                return Poll::Ready(Ok(passed));
            }
            if let Some(missing) = frames.missing() {
                let count = ready!(inner.as_mut().poll_read(cx, missing))?;
                frames.read(count);
                continue;
            }
            let count = ready!(inner.as_mut().poll_read(cx, room))?;
            let passed = frames.repair(&mut room[..count]);
            if passed > 0 || count == 0 {
                return Poll::Ready(Ok(passed));
            }
        }
    }
}

impl AsyncWrite for RepairedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_close(cx)
    }
}

/// tokio's reactor, with the other type of stream.
#[derive(Clone, Debug)]
pub(crate) struct RepairingReactor(Tokio);

/// The runtime to give to lapin.
pub(crate) fn runtime() -> Runtime<RuntimeParts<Tokio, RepairingReactor>> {
    let tokio = Tokio::current();
    Runtime::new(RuntimeParts::new(tokio.clone(), RepairingReactor(tokio)))
}

impl Reactor for RepairingReactor {
    type TcpStream = RepairedStream;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async { Ok(RepairedStream::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}
