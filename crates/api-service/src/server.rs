//! actix-web's HTTP server, started from tokio's multi-thread runtime.

use std::{io, time::Duration};

use actix_web::{
    App, HttpServer,
    dev::{Server, ServerHandle},
    middleware::from_fn,
    rt::net::TcpStream,
};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    middleware::{self, unread_body},
    routes::Routes,
};

/// How long a client may leave sent bytes unread before it loses its connection.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The database is the bottleneck, not the web workers.
const WEB_WORKERS: usize = 2;

/// Serves until `shutdown`, then lets the requests under way finish within `deadline`. Idle connections are closed at
/// once. The acceptor and the workers have threads and runtimes of their own. So the server's future is `Send` and only
/// waits for commands: no actix system is needed.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Routes,
    shutdown: &CancellationToken,
    deadline: Duration,
) -> io::Result<()> {
    if shutdown.is_cancelled() {
        return Ok(());
    }
    let server = start(listener.into_std()?, routes, deadline, UNREAD_TIMEOUT)?;
    let handle = StoppedOnDrop(server.handle());
    let mut running = tokio::spawn(server);
    tokio::select! {
        ended = &mut running => return ended?,
        () = shutdown.cancelled() => {}
    }
    // The command is sent at once. Its future would wait for the server's end.
    drop(handle.0.stop(true));
    if let Ok(ended) = timeout(deadline, &mut running).await {
        return ended?;
    }
    tracing::warn!(?deadline, "requests were still under way at shutdown.deadline (WEBHOOKS__SHUTDOWN__DEADLINE)");
    Ok(())
}

fn start(listener: std::net::TcpListener, routes: Routes, deadline: Duration, unread: Duration) -> io::Result<Server> {
    let app = move || {
        let answering = App::new().wrap(from_fn(middleware::complete)).wrap(from_fn(unread_body::closes_connection));
        answering.configure(|config| routes.configure(config))
    };
    let server = HttpServer::new(app)
        .workers(WEB_WORKERS)
        .disable_signals()
        .on_connect(move |connection, _| {
            if let Some(tcp) = connection.downcast_ref::<TcpStream>() {
                give_up_after(tcp, unread);
            }
        })
        .shutdown_timeout(deadline.as_secs().saturating_add(1))
        .listen(listener)?;
    Ok(server.run())
}

/// Lets the kernel end the connection of a client that reads nothing for this long. actix-web has no write timeout, and
/// polls neither a body nor a timer of ours while an answer waits in its buffer: it waits for ever. A client that reads
/// a packet now and then gains time, but only once per packet of its answer.
fn give_up_after(tcp: &TcpStream, unread: Duration) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(tcp).set_tcp_user_timeout(Some(unread)) {
        tracing::debug!(error = domain::error_chain(&error), "this connection's client may be slow for ever");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (tcp, unread);
}

/// Stops the server's threads when `serve` returns or is dropped.
struct StoppedOnDrop(ServerHandle);

impl Drop for StoppedOnDrop {
    fn drop(&mut self) {
        drop(self.0.stop(false));
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        time::sleep,
    };

    use super::*;
    use crate::routes;

    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_never_reads_loses_its_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let second = Duration::from_secs(1);
        let server = start(listener, routes::tests::routes(), second, second).unwrap();
        let handle = StoppedOnDrop(server.handle());
        let running = tokio::spawn(server);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(address).await.unwrap();
        let request = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request.repeat(200).as_bytes()).await.unwrap();
        let ended = async {
            while client.try_write(b"\r\n").map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(30), ended).await.expect("the connection is held for ever");
        drop(handle);
        running.await.unwrap().unwrap();
    }

    /// A server that stops, within a deadline, when the token is cancelled.
    async fn serving(
        seconds: u64,
    ) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (stop, deadline) = (shutdown.clone(), Duration::from_secs(seconds));
        let served = tokio::spawn(async move { serve(listener, routes::tests::routes(), &stop, deadline).await });
        (address, shutdown, served)
    }

    /// Proxies keep connections open, and send a request's body after its head.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_that_nobody_reads_is_no_request_and_does_not_hold_up_the_next_one() {
        let (address, shutdown, served) = serving(1).await;
        let inner = "GET /api/v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
        let last = "GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        for body in [inner.to_owned(), inner.repeat(2000)] {
            for is_answered_first in [true, false] {
                let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
                let head = format!(
                    "POST /api/v1/webhooks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n",
                    body.len()
                );
                client.write_all(head.as_bytes()).await.unwrap();
                let mut answers = Vec::new();
                if is_answered_first {
                    client.read_buf(&mut answers).await.unwrap();
                }
                // The server may close the connection instead.
                let _ = client.write_all(format!("{body}{last}").as_bytes()).await;
                let rest = timeout(Duration::from_secs(10), client.read_to_end(&mut answers)).await;
                let answers = String::from_utf8_lossy(&answers).into_owned();
                let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
                let case = format!("{} bytes, {is_answered_first}: {statuses:?}", body.len());
                assert!(rest.is_ok(), "the next request waits for ever: {case}");
                assert!(matches!(statuses[..], ["401"] | ["401", "404"]), "{case}");
            }
        }
        shutdown.cancel();
        served.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_chunked_body_without_end_that_nobody_reads_ends_the_connection() {
        let (address, shutdown, served) = serving(1).await;
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = "POST /api/v1/webhooks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        client.read_buf(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 401 "), "{}", String::from_utf8_lossy(&answer));
        let ended = async {
            while client.write_all(b"1\r\n \r\n").await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(10), ended).await.expect("the connection is held for ever");
        shutdown.cancel();
        served.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn at_the_shutdown_idle_connections_do_not_hold_the_server_and_the_port_is_free() {
        let (address, shutdown, served) = serving(20).await;
        let idle = tokio::net::TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        timeout(Duration::from_secs(10), served).await.unwrap().unwrap().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
        drop(idle);
    }
}
