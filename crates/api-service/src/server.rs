//! actix-web's server, driven by tokio's multi-thread runtime.

use std::{io, time::Duration};

use actix_web::{
    App, HttpServer,
    dev::{Server, ServerHandle},
    middleware::from_fn,
    web::Data,
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{answer, api, api::Api};

/// The database is the limit, not the web workers.
const WORKERS: usize = 2;

/// Serves until `shutdown`, then lets the requests under way finish within `deadline`; idle connections are closed at
/// once. The accepting thread and the workers have threads and runtimes of their own, so the server's future is `Send`
/// and only waits for commands: no actix system is needed.
pub(crate) async fn serve(
    listener: TcpListener,
    api: Api,
    shutdown: &CancellationToken,
    deadline: Duration,
) -> io::Result<()> {
    if shutdown.is_cancelled() {
        return Ok(());
    }
    let server = start(listener.into_std()?, api, deadline)?;
    let handle = StoppedOnDrop(server.handle());
    let mut running = tokio::spawn(server);
    tokio::select! {
        ended = &mut running => return ended?,
        () = shutdown.cancelled() => {}
    }
    // Sent at once; the answer comes when the server has ended.
    drop(handle.0.stop(true));
    if let Ok(ended) = timeout(deadline, &mut running).await {
        return ended?;
    }
    tracing::warn!(?deadline, "requests were still under way at shutdown.deadline (WEBHOOKS__SHUTDOWN__DEADLINE)");
    Ok(())
}

fn start(listener: std::net::TcpListener, api: Api, deadline: Duration) -> io::Result<Server> {
    let api = Data::new(api);
    let app = move || App::new().app_data(api.clone()).wrap(from_fn(answer::complete)).configure(api::routes);
    let server = HttpServer::new(app)
        .workers(WORKERS)
        .disable_signals()
        .shutdown_timeout(deadline.as_secs().saturating_add(1))
        .listen(listener)?;
    Ok(server.run())
}

/// Stops the server's threads when nobody waits for it any more.
struct StoppedOnDrop(ServerHandle);

impl Drop for StoppedOnDrop {
    fn drop(&mut self) {
        drop(self.0.stop(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn at_the_shutdown_idle_connections_do_not_hold_the_server_and_the_port_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let deadline = Duration::from_secs(20);
        let served = tokio::spawn(async move { serve(listener, api::tests::api(), &stop, deadline).await });
        let idle = tokio::net::TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        timeout(Duration::from_secs(10), served).await.unwrap().unwrap().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
        drop(idle);
    }
}
