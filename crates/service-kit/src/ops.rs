//! Health and metrics over HTTP, for the orchestrator and Prometheus.
//!
//! The server carries no secret and takes no input, but it has to answer even when clients misbehave. It allows 64
//! connections, each with one request, 2 s for its headers and 10 s for everything.

mod routes;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use domain::error_chain;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{SettingsError, listen, readiness::Readiness};

const MAX_CONNECTIONS: usize = 64;
const HEADERS_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for answers under way when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a failed accept, most likely for want of file descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A bound server of `/healthz`, `/readyz` and `/metrics`.
#[derive(Debug)]
pub struct OpsServer {
    listener: TcpListener,
    address: SocketAddr,
}

struct Served {
    registry: Arc<Registry>,
    readiness: Readiness,
}

impl OpsServer {
    /// Listens on `address`. With port 0 the system chooses the port.
    ///
    /// # Errors
    /// [`SettingsError::Invalid`] when the address is taken, not ours, or not allowed.
    pub async fn bind(address: SocketAddr) -> Result<Self, SettingsError> {
        let (listener, address) = listen("ops.listen", address).await?;
        Ok(Self { listener, address })
    }

    /// Where it listens, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is cancelled. Cancel it after the work is drained, later than the token of
    /// [`Readiness::draining`]: the orchestrator has to be told that this process is not ready.
    pub async fn serve(self, registry: Arc<Registry>, readiness: Readiness, stop: CancellationToken) {
        let served = Arc::new(Served { registry, readiness });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => { connections.spawn(converse(stream, Arc::clone(&served))); }
                    Err(error) => {
                        tracing::warn!(error = error_chain(&error), "ops server cannot accept a connection");
                        sleep(ACCEPT_RETRY_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        let all = async { while connections.join_next().await.is_some() {} };
        let _abandoned = timeout(SHUTDOWN_TIMEOUT, all).await;
    }
}

async fn converse(stream: TcpStream, served: Arc<Served>) {
    let service = service_fn(|request| {
        let served = Arc::clone(&served);
        async move {
            let answer = routes::answer(request.method(), request.uri().path(), &served).await;
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = error_chain(&error), "ops connection ended badly"),
        Err(_) => tracing::debug!("ops connection took too long"),
    }
}
