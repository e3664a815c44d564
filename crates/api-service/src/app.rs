//! The whole service, which is the same in production and in tests.

use std::{io, net::SocketAddr, time::Duration};

use ledger::{Ledger, SecretKeys};
use prometheus_client::registry::Registry;
use service_kit::{Foundation, Readiness, Settings, StartError, connections, listen};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    docs::Docs,
    metrics::Metrics,
    outbox::{Outbox, Wakes, relay::Relay},
    pages::brakes,
    routes::Routes,
    server,
    sessions::Authentication,
    state::State,
};

const PROCESS_NAME: &str = "api-service";
const OPS_PORT: u16 = 9081;

/// How long a request's database call may hold its connection.
pub const REQUEST_CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The shares of the process's database connections. It has at least six: neither an unknown session or key nor a slow
/// step may take the only one of its kind.
struct ConnectionShares {
    requests: usize,
    /// For searches of bodies, one at a time of each tenant.
    searches: usize,
    /// For look-ups of sessions and keys.
    sessions: usize,
    background: usize,
}

impl ConnectionShares {
    fn of(settings: &Settings) -> Self {
        let connections = settings.database.max_connections;
        let (background, sessions) = ((connections / 4).max(2), (connections / 4).max(2));
        let searches = (connections / 8).clamp(1, 2);
        let requests = connections.saturating_sub(sessions + background + searches).max(1);
        Self { requests, searches, sessions, background }
    }
}

/// Why the service cannot start, or why it failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// It cannot start or continue.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The HTTP server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

/// The service, configured and bound to its addresses. Nothing is connected yet.
pub struct App {
    /// Its ledger is for background work.
    foundation: Foundation,
    settings: Settings,
    /// For requests, and for their searches of bodies.
    ledgers: [Ledger; 2],
    keys: SecretKeys,
    authentication: Authentication,
    listener: TcpListener,
    address: SocketAddr,
}

impl App {
    /// Checks the settings and binds both addresses. Call it inside the runtime that will run the service.
    ///
    /// # Errors
    /// [`StartError`], which names the setting.
    pub async fn build(settings: &Settings) -> Result<Self, StartError> {
        Self::granting(REQUEST_CALL_TIMEOUT, settings).await
    }

    /// Like [`App::build`]. A request's database call may hold its connection for `one_request`.
    ///
    /// # Errors
    /// [`StartError`], which names the setting.
    pub async fn granting(one_request: Duration, settings: &Settings) -> Result<Self, StartError> {
        let keys = connections::secret_keys(settings)?;
        settings.console.log_in()?;
        let ConnectionShares { requests, searches, sessions, background } = ConnectionShares::of(settings);
        let background = connections::ledger_with(settings, PROCESS_NAME, background)?;
        let ledger = connections::part_of_ledger(&background, requests, one_request)?;
        let searches = connections::part_of_ledger(&background, searches, one_request)?.of_long_calls();
        let authentication = Authentication::new(settings, &background, sessions, one_request)?;
        let foundation = Foundation::build(settings, PROCESS_NAME, OPS_PORT, background).await?;
        let (listener, address) = listen("api.listen", settings.api.listen).await?;
        let settings = settings.clone();
        Ok(Self { foundation, settings, ledgers: [ledger, searches], keys, authentication, listener, address })
    }

    /// The API's address, with the port that the system chose.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of health and metrics, with the port that the system chose.
    pub fn ops_address(&self) -> SocketAddr {
        self.foundation.ops_address()
    }

    /// Serves until `shutdown`, then finishes the requests under way within `shutdown.deadline`. If the database is
    /// unavailable at the start, requests wait in the listener's queue.
    ///
    /// # Errors
    /// [`AppError`] when the schema is too old, the server fails, or a task panics that it needs.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AppError> {
        let Self { foundation, settings, ledgers, keys, authentication, listener, .. } = self;
        tracing::info!(fingerprints = ?keys.fingerprints().collect::<Vec<_>>(), "the keys that seal secrets");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let running = foundation.start(registry, Readiness::new().optional("broker"), &shutdown).await?;
        let wakes = Wakes::default();
        let relay = Relay {
            outbox: Outbox::new(running.ledger.clone(), &running.broker, running.publisher.clone()),
            wakes: wakes.clone(),
            ledger: running.ledger.clone(),
            metrics: metrics.clone(),
            recover_per_second: settings.api.recover_per_second,
            bodies: settings.retention.kept().bodies,
        };
        let (brakes, brake) = watch::channel(None);
        running.essential.spawn("brakes", brakes::watch(running.ledger.clone(), brakes, shutdown.clone()));
        let state = State::new(&settings, ledgers, wakes, keys, brake);
        let docs = Docs::new(&settings.limits, state.most, settings.console.enabled);
        let routes = Routes::new(state, docs, authentication, metrics, running.traces.clone());
        // In a box: the nested futures exceed the compiler's depth limit.
        let serving = Box::pin(serve(listener, routes, relay, &shutdown, settings.shutdown.deadline));
        let served = running.essential.run(serving).await.map_err(StartError::from)?;
        running.finish().await;
        served.map_err(AppError::Serve)
    }
}

/// Runs the HTTP server and the outbox relay. Both end at the shutdown, or when the server fails.
async fn serve(
    listener: TcpListener,
    routes: Routes,
    relay: Relay,
    shutdown: &CancellationToken,
    deadline: Duration,
) -> io::Result<()> {
    let stop = shutdown.child_token();
    let serving = async {
        let served = server::serve(listener, routes, shutdown, deadline).await;
        stop.cancel();
        served
    };
    tokio::join!(serving, relay.run(&stop, deadline)).0
}
