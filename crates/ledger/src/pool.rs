//! Connections to the database.

use std::{error::Error as _, io, str::FromStr, sync::Arc, time::Duration};

use diesel::{
    ConnectionError,
    result::{DatabaseErrorKind, Error},
};
use diesel_async::{
    AsyncPgConnection, SimpleAsyncConnection,
    pooled_connection::{
        AsyncDieselConnectionManager, ManagerConfig, PoolError, PoolableConnection, RecyclingMethod,
        deadpool::{Object, Pool, PoolError as NotHad},
    },
};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio::sync::OnceCell;
use tokio_postgres::{Config, NoTls, config::TargetSessionAttrs};

use crate::{error::LedgerError, timings::Timings};

/// How to reach the database.
#[derive(Clone)]
pub struct LedgerConfig {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The name of this process in `pg_stat_activity`.
    pub application_name: &'static str,
    /// How long a call may hold a connection, from its first statement to its last. [`PATIENCE`] unless a client waits.
    pub patience: Duration,
}

/// A handle on the ledger: a pool of connections. It is cheap to clone. Connections are made when they are needed.
#[derive(Clone)]
pub struct Ledger {
    pool: Pool<AsyncPgConnection>,
    config: Arc<LedgerConfig>,
    /// All pools to the same database, this one included.
    pools: Arc<Mutex<Vec<Pool<AsyncPgConnection>>>>,
    pub(crate) timings: Timings,
    /// Read from the database once.
    pub(crate) ids_without_types_until: Arc<OnceCell<OffsetDateTime>>,
}

/// The connections of a process, but those of its leader and of migrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// The most that there may be.
    pub most: usize,
    /// How many there are.
    pub open: usize,
    /// How many of them a call uses.
    pub in_use: usize,
    /// How many calls wait for one.
    pub wanted: usize,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may hold a connection when no client waits for it. Shorter than the default deadline of a shutdown.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// See the README: the hot path's statements find their rows by key, and each connection plans them once. A new plan
/// for every batch, over all partitions, would cost more than the statement itself. A plan made while a table was
/// nearly empty must serve when it is full. So table scans, and all joins but nested loops, are off.
const SESSION: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
     SET plan_cache_mode = force_generic_plan; SET timezone = 'UTC'; SET idle_in_transaction_session_timeout = '20s'";

/// Allocates 8 MiB on the server once, in a few milliseconds. Computed, as a constant would be copied several times.
/// From then on the C library (glibc) keeps what a batch of long bodies needs, up to twice as much. Otherwise it may
/// return several MiB to the system after a batch, depending on earlier ones, and take them again page by page.
const WARM_UP: &str = "SELECT octet_length(repeat(repeat(' ', 8192), 1024 + (random() * 0)::integer))";

impl Ledger {
    /// Makes the pool, inside a tokio runtime. Does not connect yet.
    ///
    /// # Errors
    /// [`LedgerError::Url`] when the connection string is malformed.
    pub fn new(config: &LedgerConfig) -> Result<Self, LedgerError> {
        Self::among(config.clone(), Arc::default(), Timings::default())
    }

    /// A handle with a pool of its own, in the same runtime. Its callers wait for no other handle's connections. A call
    /// may hold one for `patience`. When one handle finds the database read-only, all drop their idle connections.
    ///
    /// # Errors
    /// As [`Ledger::new`].
    pub fn part(&self, max_connections: usize, patience: Duration) -> Result<Self, LedgerError> {
        let config = LedgerConfig { max_connections, patience, ..LedgerConfig::clone(&self.config) };
        Self::among(config, Arc::clone(&self.pools), self.timings.clone())
    }

    fn among(
        config: LedgerConfig,
        pools: Arc<Mutex<Vec<Pool<AsyncPgConnection>>>>,
        timings: Timings,
    ) -> Result<Self, LedgerError> {
        let pool = make_pool(&config)?;
        pools.lock().push(pool.clone());
        Ok(Self { pool, config: Arc::new(config), pools, timings, ids_without_types_until: Arc::default() })
    }

    /// Runs statements on a connection of the pool, with a deadline. Drops the connection when the deadline passes.
    /// Drops it and all idle ones when the database takes no writes: the next connection may find the new primary.
    pub(crate) async fn run<T, F>(&self, statements: F) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        let mut conn = self.pool.get().await.map_err(not_had)?;
        let _timing = self.timings.begin::<F>();
        let error = match tokio::time::timeout(self.config.patience, statements(&mut conn)).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => failed(error, &mut conn),
            Err(_) => LedgerError::Timeout(self.config.patience),
        };
        match error {
            LedgerError::Timeout(_) => drop(Object::take(conn)),
            LedgerError::ReadOnly => {
                drop(Object::take(conn));
                for pool in self.pools.lock().iter() {
                    pool.retain(|_, _| false);
                }
            }
            _ => {}
        }
        Err(error)
    }

    /// Registers how long calls take in the process's metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.timings.register(registry);
    }

    /// How many connections all pools to the same database have now.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.pools.lock().iter().map(Pool::status).fold(Connections::default(), |sum, pool| Connections {
            most: sum.most + pool.max_size,
            open: sum.open + pool.size,
            in_use: sum.in_use + pool.size.saturating_sub(pool.available),
            wanted: sum.wanted + pool.waiting,
        })
    }

    /// Takes a connection out of the pool.
    pub(crate) async fn connection(&self) -> Result<AsyncPgConnection, LedgerError> {
        let conn = self.pool.get().await.map_err(not_had)?;
        Ok(Object::take(conn))
    }
}

fn make_pool(config: &LedgerConfig) -> Result<Pool<AsyncPgConnection>, LedgerError> {
    let settings = connection_settings(config)?;
    let patience = config.patience;
    let mut manager = ManagerConfig::default();
    manager.recycling_method = RecyclingMethod::Fast;
    // A connection's driver lives on the runtime that spawns it: always this one, never a web worker's.
    let runtime = tokio::runtime::Handle::current();
    manager.custom_setup = Box::new(move |_| {
        let settings = settings.clone();
        let established = runtime.spawn(async move { establish(&settings, patience).await });
        Box::pin(async move {
            established.await.unwrap_or_else(|died| Err(ConnectionError::BadConnection(died.to_string())))
        })
    });
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new_with_config(&config.url, manager);
    Pool::builder(manager)
        .max_size(config.max_connections)
        .queue_mode(deadpool::managed::QueueMode::Lifo)
        .runtime(deadpool::Runtime::Tokio1)
        .wait_timeout(Some(CONNECT_TIMEOUT))
        .create_timeout(Some(CONNECT_TIMEOUT))
        .recycle_timeout(Some(CONNECT_TIMEOUT))
        .build()
        .map_err(|error| LedgerError::Unavailable(error.into()))
}

/// Whether a statement failed because the connection, or the server behind it, went away.
fn is_lost(error: &Error, conn: &mut AsyncPgConnection) -> bool {
    let sent = !matches!(
        error,
        Error::DatabaseError(DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection, _)
    );
    !sent || (matches!(error, Error::DatabaseError(DatabaseErrorKind::Unknown, _)) && conn.is_broken())
}

/// Tells what failed: the statement, the connection, or a write to a server that takes none.
pub(crate) fn failed(error: Error, conn: &mut AsyncPgConnection) -> LedgerError {
    match error {
        Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => LedgerError::ReadOnly,
        error if is_lost(&error, conn) => LedgerError::Unavailable(error.into()),
        error => LedgerError::Query(error),
    }
}

/// The server's answer to a write that it does not take.
pub(crate) fn read_only() -> Error {
    Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, Box::new("the database takes no writes".to_owned()))
}

fn not_had(error: NotHad) -> LedgerError {
    match error {
        NotHad::Backend(PoolError::ConnectionError(ConnectionError::CouldntSetupConfiguration(
            Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _),
        ))) => LedgerError::ReadOnly,
        error => LedgerError::Unavailable(error.into()),
    }
}

fn connection_settings(config: &LedgerConfig) -> Result<Config, LedgerError> {
    let mut settings = Config::from_str(&config.url).map_err(LedgerError::Url)?;
    settings
        .application_name(config.application_name)
        .connect_timeout(CONNECT_TIMEOUT)
        // Of several hosts, the primary.
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .keepalives_idle(Duration::from_secs(10))
        .tcp_user_timeout(Duration::from_secs(20));
    Ok(settings)
}

async fn establish(settings: &Config, patience: Duration) -> Result<AsyncPgConnection, ConnectionError> {
    let (client, driver) = settings.connect(NoTls).await.map_err(|error| refused(&error))?;
    let mut conn = AsyncPgConnection::try_from_client_and_connection(client, driver).await?;
    // The server ends a statement a little after the caller's deadline, so that the caller knows why it failed.
    let session = format!("{SESSION}; SET statement_timeout = '{}ms'", (patience + patience / 10).as_millis());
    conn.batch_execute(&session).await.map_err(ConnectionError::CouldntSetupConfiguration)?;
    if let Err(error) = conn.batch_execute(WARM_UP).await {
        tracing::debug!(%error, "this connection's batches may cost the server more");
    }
    Ok(conn)
}

fn refused(error: &tokio_postgres::Error) -> ConnectionError {
    let cause = error.source();
    // The client reports a read-only server by this kind without a number. The system's error has one.
    let is_read_only = cause
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none());
    if is_read_only {
        return ConnectionError::CouldntSetupConfiguration(read_only());
    }
    ConnectionError::BadConnection(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
}
