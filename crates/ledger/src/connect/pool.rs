//! Connections to the database.

use std::{sync::Arc, time::Duration};

use diesel::{
    ConnectionError,
    result::{DatabaseErrorKind, Error},
};
use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager,
    pooled_connection::{
        AsyncDieselConnectionManager, ManagerConfig, PoolError, RecyclingMethod,
        deadpool::{Object, Pool, PoolError as DeadpoolError},
    },
};
use domain::TenantId;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::{
    connect::{
        CONNECT_TIMEOUT,
        address::{Address, LedgerConfig},
        establish,
        hosts::{LatestHost, silent},
        session::{self, ServerSessions},
        tenant_queue::{TenantPermit, TenantQueue},
        timings::Timings,
    },
    error::LedgerError,
    migrations::Migrations,
};

/// A handle on the ledger: a pool of connections. It is cheap to clone. Connections are made when they are needed.
#[derive(Clone)]
pub struct Ledger {
    pool: Pool<AsyncPgConnection>,
    pub(crate) config: Arc<LedgerConfig>,
    pub(crate) context: Arc<Context>,
    /// The queue of calls for one tenant.
    tenant_queue: Arc<TenantQueue>,
    tenant: Option<TenantId>,
    /// Permits to examine a failed statement: one at a time.
    pub(crate) probes: Arc<Semaphore>,
    pub(crate) migrations: Migrations,
}

/// The context that all handles on the same database share.
#[derive(Default)]
pub(crate) struct Context {
    pools: Mutex<Vec<Pool<AsyncPgConnection>>>,
    sessions: Arc<ServerSessions>,
    pub(crate) latest_host: Arc<LatestHost>,
    timings: Timings,
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

/// How long a call may hold a connection when no client waits for it. Shorter than the default deadline of a shutdown.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// A healthy server answers an empty statement within this time.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

impl Ledger {
    /// Makes the pool, inside a tokio runtime. Does not connect yet.
    ///
    /// # Errors
    /// [`LedgerError::Url`] when the connection string is malformed, [`LedgerError::TlsOption`] when what it says of TLS
    /// is not possible, [`LedgerError::TlsTwice`] and [`LedgerError::TlsFile`] for the files of TLS,
    /// [`LedgerError::TwoPasswords`] and [`LedgerError::PasswordFile`] for the password's file.
    pub fn new(config: &LedgerConfig) -> Result<Self, LedgerError> {
        Self::among(config.clone(), Arc::default())
    }

    /// A handle with a pool of its own, in the same runtime. Its callers wait for no other handle's connections. A call
    /// may hold one for `call_timeout`. When one handle finds the database read-only, all drop their idle connections.
    ///
    /// # Errors
    /// As [`Ledger::new`].
    pub fn with_pool(&self, max_connections: usize, call_timeout: Duration) -> Result<Self, LedgerError> {
        let config = LedgerConfig { max_connections, call_timeout, ..LedgerConfig::clone(&self.config) };
        Self::among(config, Arc::clone(&self.context))
    }

    /// The same handle for one tenant's calls. When tenants wait for connections, they take turns.
    pub fn of_tenant(&self, tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// The same handle, for long calls of tenants, which take turns ([`Ledger::turn`]).
    pub fn of_long_calls(self) -> Self {
        Self { tenant_queue: TenantQueue::of_long_calls(self.config.max_connections), ..self }
    }

    /// Waits until it is a tenant's turn: while it holds the permit, one of the connections is free for it. `None` when it
    /// has waited for as long as `patience`.
    pub async fn turn(&self, tenant: TenantId, patience: Duration) -> Option<TenantPermit> {
        tokio::time::timeout(patience, self.tenant_queue.wait(tenant)).await.ok()
    }

    fn among(config: LedgerConfig, context: Arc<Context>) -> Result<Self, LedgerError> {
        let pool = make_pool(&config, &context)?;
        context.pools.lock().push(pool.clone());
        let (tenant_queue, probes) = (TenantQueue::new(config.max_connections), Arc::new(Semaphore::new(1)));
        let config = Arc::new(config);
        Ok(Self { pool, config, context, tenant_queue, tenant: None, probes, migrations: Migrations::default() })
    }

    /// The hosts of the connection string, other than this machine, that are reached without TLS.
    pub fn in_the_clear(&self) -> Vec<String> {
        Address::parse(&self.config.url, &self.config.tls).map(|address| address.in_the_clear()).unwrap_or_default()
    }

    /// Runs statements on a connection of the pool, with a deadline. Drops the connection when the deadline passes or it
    /// is lost. Drops it and all idle ones when the database accepts no writes: the next connection may find the new
    /// primary. `call` is the name of the calling function, for the metric.
    pub(crate) async fn run<T, F>(&self, call: &'static str, statements: F) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        let _permit = self.tenant_permit().await?;
        let mut conn = self.pooled().await?;
        let _timing = self.context.timings.begin(call);
        let error = match tokio::time::timeout(self.config.call_timeout, statements(&mut conn)).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => failed(error, &mut conn).await,
            Err(_) => LedgerError::Timeout(self.config.call_timeout),
        };
        match error {
            LedgerError::Timeout(_) | LedgerError::Unavailable(_) => drop(Object::take(conn)),
            LedgerError::ReadOnly => {
                drop(Object::take(conn));
                self.close_idle();
            }
            _ => {}
        }
        Err(error)
    }

    /// Runs statements as [`Ledger::run`] does, in one transaction.
    pub(crate) async fn transaction<T, F>(&self, call: &'static str, statements: F) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        self.run(call, async |conn| {
            AnsiTransactionManager::begin_transaction(conn).await?;
            let done = statements(conn).await;
            match done {
                Ok(_) => AnsiTransactionManager::commit_transaction(conn).await?,
                Err(_) => _ = AnsiTransactionManager::rollback_transaction(conn).await,
            }
            done
        })
        .await
    }

    /// Registers how long calls take in the process's metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.context.timings.register(registry);
    }

    /// How many connections all pools to the same database have now.
    pub fn connections(&self) -> Connections {
        self.context.pools.lock().iter().map(Pool::status).fold(Connections::default(), |sum, pool| Connections {
            most: sum.most + pool.max_size,
            open: sum.open + pool.size,
            in_use: sum.in_use + pool.size.saturating_sub(pool.available),
            wanted: sum.wanted + pool.waiting,
        })
    }

    /// How long calls take, for connections that are not in the pool.
    pub(crate) fn timings(&self) -> Timings {
        self.context.timings.clone()
    }

    /// Waits for a permit of the tenant, as long as for a connection.
    async fn tenant_permit(&self) -> Result<Option<TenantPermit>, LedgerError> {
        let Some(tenant) = self.tenant else { return Ok(None) };
        let permit = tokio::time::timeout(CONNECT_TIMEOUT, self.tenant_queue.wait(tenant)).await;
        permit.map(Some).map_err(|late| LedgerError::Unavailable(late.into()))
    }

    /// Takes a connection out of the pool.
    pub(crate) async fn connection(&self) -> Result<AsyncPgConnection, LedgerError> {
        Ok(Object::take(self.pooled().await?))
    }

    async fn pooled(&self) -> Result<Object<AsyncPgConnection>, LedgerError> {
        self.pool.get().await.map_err(pool_error).inspect_err(|error| {
            if matches!(error, LedgerError::SharedSession) {
                // The sessions of the others are shared as well, though nobody has noticed.
                self.context.sessions.forget();
                self.close_idle();
            }
        })
    }

    fn close_idle(&self) {
        for pool in self.context.pools.lock().iter() {
            pool.retain(|_, _| false);
        }
    }
}

/// The pool holds parts of the context, but not the list of pools: it would hold itself.
fn make_pool(config: &LedgerConfig, context: &Context) -> Result<Pool<AsyncPgConnection>, LedgerError> {
    let address = Arc::new(Address::of(config)?);
    let (process, call_timeout) = (config.application_name, config.call_timeout);
    let (sessions, latest_host) = (Arc::clone(&context.sessions), Arc::clone(&context.latest_host));
    let mut manager = ManagerConfig::default();
    manager.recycling_method = RecyclingMethod::Fast;
    // A connection's driver lives on the runtime that spawns it: always this one, never a web worker's.
    let runtime = tokio::runtime::Handle::current();
    manager.custom_setup = Box::new(move |_| {
        let (address, sessions, latest_host) = (Arc::clone(&address), Arc::clone(&sessions), Arc::clone(&latest_host));
        // Nobody cancels the task when its caller gives up, and a frozen server never answers.
        let established = runtime.spawn(async move {
            let establishing = establish(&address, process, call_timeout, (&sessions, &latest_host));
            tokio::time::timeout(CONNECT_TIMEOUT, establishing).await.unwrap_or_else(|_| Err(silent(CONNECT_TIMEOUT)))
        });
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

/// Returns true if a statement failed because the connection, or the server behind it, went away. A server that ends a
/// session says so in an error like any other before it closes the connection, so after one that diesel does not know the
/// server has to answer once more.
async fn is_lost(error: &Error, conn: &mut AsyncPgConnection) -> bool {
    use DatabaseErrorKind::{ClosedConnection, UnableToSendCommand, Unknown};
    match error {
        Error::DatabaseError(UnableToSendCommand | ClosedConnection, _) => true,
        Error::DatabaseError(Unknown, _) => {
            let answered = tokio::time::timeout(PROBE_TIMEOUT, conn.batch_execute("")).await;
            !matches!(answered, Ok(Ok(())))
        }
        _ => false,
    }
}

/// Tells what failed: the statement, the connection, or a write to a server that takes none.
pub(crate) async fn failed(error: Error, conn: &mut AsyncPgConnection) -> LedgerError {
    match error {
        Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => LedgerError::ReadOnly,
        error if session::is_shared(&error) => LedgerError::SharedSession,
        error if is_lost(&error, conn).await => LedgerError::Unavailable(error.into()),
        error => LedgerError::Query(error),
    }
}

fn pool_error(error: DeadpoolError) -> LedgerError {
    use ConnectionError::CouldntSetupConfiguration;
    match error {
        DeadpoolError::Backend(PoolError::ConnectionError(CouldntSetupConfiguration(Error::QueryBuilderError(
            reason,
        )))) => reason.downcast().map_or_else(LedgerError::Unavailable, |reason| *reason),
        error => LedgerError::Unavailable(error.into()),
    }
}
