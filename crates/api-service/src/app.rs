//! The whole service, which is the same in production and in tests.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use broker::Broker;
use ledger::{Ledger, SecretKeys};
use prometheus_client::registry::Registry;
use service_kit::{
    DatabaseWatch, OpsError, OpsServer, Settings, SettingsError,
    connections::{self, SchemaTooOld},
    settings::SessionBackEnd,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    authentication::Authentication,
    metrics::Metrics,
    outbox::{Outbox, relay::Relay},
    routes::Routes,
    server,
    state::State,
};

const PROCESS: &str = "api-service";
/// The default of `ops.listen`, for health and metrics.
const OPS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9081);

/// How long a request's database call may hold its connection.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// How the process divides its database connections. It has at least five (three with introspection): neither an
/// unknown session nor a slow step may take the only one of its kind.
struct Shares {
    requests: usize,
    sessions: usize,
    background: usize,
}

impl Shares {
    fn of(settings: &Settings) -> Self {
        let connections = settings.database.max_connections;
        let background = (connections / 4).max(2);
        let sessions = match settings.api.sessions {
            SessionBackEnd::Database => (connections / 4).max(2),
            SessionBackEnd::Introspection => 0,
        };
        Self { requests: connections.saturating_sub(sessions + background).max(1), sessions, background }
    }
}

/// Why the service cannot start, or why it failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The API cannot listen on its address.
    #[error("api.listen (WEBHOOKS__API__LISTEN): cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The service cannot listen on the operations address.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The database's schema is older than this program.
    #[error(transparent)]
    Schema(#[from] SchemaTooOld),
    /// The HTTP server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

/// The service, configured and bound to its addresses. Nothing is connected yet.
pub struct App {
    settings: Settings,
    /// For requests.
    ledger: Ledger,
    /// For background work.
    background: Ledger,
    broker: Broker,
    keys: SecretKeys,
    authentication: Authentication,
    ops: OpsServer,
    listener: TcpListener,
    address: SocketAddr,
}

impl App {
    /// Checks the settings and binds both addresses. Call it inside the runtime that will run the service.
    ///
    /// # Errors
    /// [`AppError`] with the name of the setting.
    pub async fn build(settings: &Settings) -> Result<Self, AppError> {
        let keys = connections::secret_keys(settings)?;
        let Shares { requests, sessions, background } = Shares::of(settings);
        let background = connections::ledger_with(settings, PROCESS, background)?;
        let ledger = connections::part_of_ledger(&background, requests, ONE_REQUEST)?;
        let broker = connections::broker(settings, PROCESS)?;
        let authentication = Authentication::new(settings, &background, sessions, ONE_REQUEST)?;
        let ops = OpsServer::bind(settings.ops.listen.unwrap_or(OPS)).await?;
        let (listener, address) = bind(settings.api.listen).await?;
        let settings = settings.clone();
        Ok(Self { settings, ledger, background, broker, keys, authentication, ops, listener, address })
    }

    /// The API's address, with the port that the system chose.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of health and metrics, with the port that the system chose.
    #[must_use]
    pub fn ops_address(&self) -> SocketAddr {
        self.ops.local_addr()
    }

    /// Serves until `shutdown`, then finishes the requests under way within `shutdown.deadline`. If the database is
    /// away at the start, requests wait in the listener's queue.
    ///
    /// # Errors
    /// [`AppError`] when the schema is too old or the server fails.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AppError> {
        let Self { settings, ledger, background, broker, keys, authentication, ops, listener, .. } = self;
        tracing::info!(fingerprints = ?keys.fingerprints().collect::<Vec<_>>(), "the keys that seal secrets");
        let mut registry = Registry::default();
        broker.stats().register(&mut registry);
        let metrics = Metrics::register(&mut registry);

        // The tasks with these tokens outlive the work. The guards stop them however it ends.
        let (publishing, telling) = (CancellationToken::new(), CancellationToken::new());
        let (publishing_ends, telling_ends) = (publishing.clone().drop_guard(), telling.clone().drop_guard());
        let _clock = DatabaseWatch::start(&background, &mut registry, telling.clone());
        let publisher = broker.publisher(publishing);
        let readiness = connections::readiness(&background, &publisher, shutdown.clone());
        let health = tokio::spawn(ops.serve(Arc::new(registry), readiness, telling));

        connections::wait_for_schema(&background, &shutdown).await?;
        let outbox = Outbox::new(ledger.clone(), &broker, publisher);
        let relay = Relay {
            outbox: outbox.with(background.clone()),
            ledger: background,
            metrics: metrics.clone(),
            recover_per_second: settings.api.recover_per_second,
            keep: settings.retention.keep,
        };
        let routes = Routes::new(State::new(&settings, ledger, outbox, keys), authentication, metrics);
        // The server and the relay end at the shutdown, or when the server fails.
        let (stop, deadline) = (shutdown.child_token(), settings.shutdown.deadline);
        let serving = async {
            let served = server::serve(listener, routes, &shutdown, deadline).await;
            stop.cancel();
            served
        };
        let (served, ()) = tokio::join!(serving, relay.run(&stop, deadline));

        drop((publishing_ends, telling_ends));
        let _ = health.await;
        served.map_err(AppError::Serve)
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), AppError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| AppError::Listen { address, source })
}
