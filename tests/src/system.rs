//! The whole service for one test, or for many that share it. Its environment has its own database and queue prefix on
//! the shared servers.

mod failure;
mod shared;

use std::{
    collections::HashMap, net::SocketAddr, ops::Deref, panic::AssertUnwindSafe, path::PathBuf, sync::Arc, thread,
    time::Duration,
};

use broker::{Names, Topology};
use domain::TenantId;
use futures_util::{FutureExt, future::join_all};
use ledger::{CredentialHash, Ledger, LedgerConfig, NewSession, Session};
use service_kit::Settings;
use time::OffsetDateTime;
use tokio::{
    runtime::Handle,
    sync::Mutex,
    task::{JoinError, JoinHandle, block_in_place},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    api::{Answer, Api, Created},
    database::{self, Sessions, with_database},
    outsider::{Outsider, sql},
    receiver::{Behaviour, Receiver, TestCa},
    servers::{PrivateServers, Servers, repository},
    wait::{SOON, eventually_ok, until},
};

/// The options of a test's system.
#[derive(Clone, Debug)]
pub struct Options {
    /// `retry.schedule`
    pub schedule: &'static str,
    /// `egress.timeout`
    pub timeout: &'static str,
    /// The longest time of a call's statement in the API. The default is generous: no test may depend on speed.
    pub one_request: Duration,
    /// The number of dispatchers.
    pub dispatchers: usize,
    /// Further settings by environment variable, `WEBHOOKS__` optional.
    pub settings: Vec<(&'static str, String)>,
    /// The servers, if not the shared ones.
    pub servers: Option<Servers>,
}

impl Default for Options {
    fn default() -> Self {
        let schedule = "300ms,600ms,900ms,1200ms,1500ms,1800ms";
        let one_request = Duration::from_secs(20);
        Self { schedule, timeout: "5s", one_request, dispatchers: 1, settings: Vec::new(), servers: None }
    }
}

impl Options {
    /// The default options with these settings.
    #[must_use]
    pub fn with<const N: usize>(settings: [(&'static str, &str); N]) -> Self {
        Self::default().and(settings)
    }

    /// Adds settings.
    #[must_use]
    pub fn and<const N: usize>(mut self, settings: [(&'static str, &str); N]) -> Self {
        self.settings.extend(settings.map(|(name, value)| (name, value.to_owned())));
        self
    }

    /// The API gives a call's statement a second, as in production.
    #[must_use]
    pub fn impatient(mut self) -> Self {
        self.one_request = api_service::REQUEST_CALL_TIMEOUT;
        self
    }

    /// Keeps, and so accepts, events for a hundred years: for events with fixed timestamps.
    #[must_use]
    pub fn keeping_long(mut self) -> Self {
        self.settings.push(("RETENTION__KEEP", "36500days".to_owned()));
        self
    }
}

/// The service in its environment.
pub struct System {
    /// The settings of its processes, as environment variables.
    pub variables: HashMap<String, String>,
    /// The authority that signs the receivers' certificates.
    pub ca: TestCa,
    /// The names of exchanges and queues.
    pub names: Names,
    /// A publisher that plays the upstream services.
    pub upstream: Outsider,
    /// The URL of this test's database.
    pub database_url: String,
    /// The URL of the broker, or of each node.
    pub amqp_url: String,
    sessions: Arc<Sessions>,
    ledger: Ledger,
    /// Where connections live. The shared system outlives the runtimes of its tests.
    home: Handle,
    admin_url: String,
    database: String,
    folder: PathBuf,
    one_request: Duration,
    services: Mutex<Vec<Running>>,
    api: Mutex<Option<SocketAddr>>,
}

/// A tenant with one webhook.
pub struct Subscriber {
    /// The tenant.
    pub tenant: Uuid,
    /// An administrator of the tenant.
    pub api: Api,
    /// The webhook's receiver.
    pub receiver: Receiver,
    /// The webhook's id.
    pub webhook: String,
    /// The webhook's secret.
    pub secret: String,
}

/// The system of one test. It is checked and removed at the end of the test, whatever the outcome. A failed test shows
/// what was in the system.
pub struct TestSystem {
    system: Arc<System>,
    is_over: bool,
}

impl TestSystem {
    /// A system in which all services run.
    pub async fn running(options: Options) -> Self {
        let dispatchers = options.dispatchers;
        let system = Self::serving(options, [Service::Api, Service::Ingest]).await;
        for _ in 0..dispatchers {
            system.start(Service::Dispatcher).await;
        }
        system
    }

    /// A system in which these services run.
    pub async fn serving<const N: usize>(options: Options, services: [Service; N]) -> Self {
        let system = Self::prepared(options).await;
        for service in services {
            system.start(service).await;
        }
        system
    }

    /// A system in which no service runs yet.
    pub async fn prepared(options: Options) -> Self {
        Self::of(Arc::new(System::prepare(options).await))
    }

    /// The system that such tests of one program share: it has the default options, and all services run.
    /// Tenants are walls: the test has a tenant of its own, and names it in whatever it looks for or counts.
    pub async fn shared() -> Self {
        Self::of(shared::system().await)
    }

    const fn of(system: Arc<System>) -> Self {
        Self { system, is_over: false }
    }

    /// Runs a test that is a closure, and ends without blocking its thread: several such may run in one task.
    async fn run<F: Future<Output = ()>>(mut self, test: impl FnOnce(Arc<System>) -> F) {
        let outcome = AssertUnwindSafe(test(Arc::clone(&self))).catch_unwind().await;
        self.is_over = true;
        let differing = self.end(outcome.is_err()).await;
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!(differing, "", "deliveries and unsuccessful_deliveries");
    }
}

impl Deref for TestSystem {
    type Target = Arc<System>;

    fn deref(&self) -> &Arc<System> {
        &self.system
    }
}

impl Drop for TestSystem {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let failed = thread::panicking();
        // A panic in here must not meet the one of the test.
        let end = AssertUnwindSafe(self.end(failed)).catch_unwind();
        let ended = block_in_place(|| Handle::current().block_on(end));
        if !failed {
            let differing = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert_eq!(differing, "", "deliveries and unsuccessful_deliveries");
        }
    }
}

/// One of the three services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The REST API.
    Api,
    /// Turns events into deliveries.
    Ingest,
    /// Makes the attempts of deliveries.
    Dispatcher,
}

impl PrivateServers {
    /// The options of a system on these servers.
    #[must_use]
    pub fn options(&self, options: Options) -> Options {
        Options { servers: Some(self.servers().clone()), ..options }
    }
}

struct Running {
    service: Service,
    stop: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl System {
    /// Like [`TestSystem::prepared`], for a test that is a closure.
    pub async fn prepared<F: Future<Output = ()>>(options: Options, test: impl FnOnce(Arc<Self>) -> F) {
        TestSystem::prepared(options).await.run(test).await;
    }

    async fn prepare(options: Options) -> Self {
        Self::prepare_as(&Self::new_tag(), options).await
    }

    /// A tag that no other system has. By its time, a later run recognises what an interrupted one has left (`database.rs`).
    fn new_tag() -> String {
        let (now, random) = (OffsetDateTime::now_utc().unix_timestamp(), Uuid::new_v4().simple().to_string());
        format!("{now:08x}{}", &random[..6])
    }

    /// Like [`System::prepare`]. `tag` is in the names of database, queues and exchanges.
    async fn prepare_as(tag: &str, options: Options) -> Self {
        failure::show_logs();
        let system = Self::named(tag, options).await;
        database::create(&system.admin_url, &system.database).await;
        system
    }

    /// The system of that tag, without its database.
    async fn named(tag: &str, options: Options) -> Self {
        let Servers { database_url: admin_url, amqp_url } = options.servers.unwrap_or_else(Servers::shared);
        let (database, prefix) = (format!("e2e_{tag}"), format!("e2e-{tag}"));
        let database_url = with_database(&admin_url, &database);
        let config = LedgerConfig {
            url: database_url.clone(),
            password_file: None,
            tls: Default::default(),
            max_connections: 2,
            application_name: "tests",
            call_timeout: ledger::CALL_TIMEOUT,
        };
        let ledger = Ledger::new(&config).expect("the URL is good");
        let names = Names::new(&prefix, &format!("{prefix}.business"));
        let folder = repository().join("target/tests").join(format!("{prefix}-{}", std::process::id()));
        let ca = TestCa::new();
        let mut variables = HashMap::new();
        let mut set = |name: &str, value: &str| variables.insert(format!("WEBHOOKS__{name}"), value.to_owned());
        set("DATABASE__URL", &database_url);
        set("DATABASE__MAX_CONNECTIONS", "4");
        set("BROKER__URL", &amqp_url);
        set("BROKER__PREFIX", &prefix);
        set("BROKER__EVENTS_EXCHANGE", &names.events_exchange);
        set("API__LISTEN", "127.0.0.1:0");
        // Tests ask again and again until something has happened.
        set("API__RATE_LIMIT_PER_MINUTE", "0");
        set("OPS__LISTEN", "127.0.0.1:0");
        set("SECRETS__KEYS", &format!("test:{}", hex::encode([7; 32])));
        set("RETRY__SCHEDULE", options.schedule);
        set("EGRESS__TIMEOUT", options.timeout);
        set("EGRESS__EXTRA_CA_FILE", &ca.write_to(&folder).display().to_string());
        set("EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8,::1/128");
        for (name, value) in &options.settings {
            set(name.trim_start_matches("WEBHOOKS__"), value);
        }
        Self {
            upstream: Outsider::connect(&amqp_url, &names.events_exchange).await,
            variables,
            ca,
            names,
            sessions: Arc::new(Sessions::of(database_url.clone())),
            home: Handle::current(),
            database_url,
            amqp_url,
            ledger,
            admin_url,
            database,
            folder,
            one_request: options.one_request,
            services: Mutex::default(),
            api: Mutex::default(),
        }
    }

    /// The ledger with its own connections, known to the server by `application_name`.
    #[must_use]
    pub fn ledger_as(&self, application_name: &'static str, max_connections: usize) -> Ledger {
        let (url, tls, call_timeout) = (self.database_url.clone(), Default::default(), ledger::CALL_TIMEOUT);
        let config = LedgerConfig { url, password_file: None, tls, max_connections, application_name, call_timeout };
        Ledger::new(&config).expect("the URL is good")
    }

    /// The settings as a service reads them.
    pub fn settings(&self) -> Settings {
        self.settings_with(&[])
    }

    /// The settings of its processes, with other values of some. A name needs no `WEBHOOKS__`.
    #[must_use]
    pub fn with(&self, settings: &[(&str, &str)]) -> HashMap<String, String> {
        let mut variables = self.variables.clone();
        for (name, value) in settings {
            let prefix = if name.starts_with("WEBHOOKS_") { "" } else { "WEBHOOKS__" };
            variables.insert(format!("{prefix}{name}"), (*value).to_owned());
        }
        variables
    }

    /// Like [`System::with`], as a service reads them.
    #[must_use]
    pub fn settings_with(&self, settings: &[(&str, &str)]) -> Settings {
        Settings::from_sources(None, self.with(settings)).expect("the settings are good")
    }

    /// Starts a service in this process and waits until it is ready. Returns its operations address.
    pub async fn start(&self, service: Service) -> SocketAddr {
        self.start_with(service, self.settings()).await
    }

    /// Like [`System::start`], with other settings.
    pub async fn start_with(&self, service: Service, settings: Settings) -> SocketAddr {
        let stop = CancellationToken::new();
        let (ops, task) = match service {
            Service::Api => {
                let app = api_service::App::granting(self.one_request, &settings).await.expect("the API starts");
                *self.api.lock().await = Some(app.address());
                let stop = stop.clone();
                (app.ops_address(), tokio::spawn(async move { app.run(stop).await.map_err(|e| e.to_string()) }))
            }
            Service::Ingest => {
                let app = event_ingest::App::build(&settings).await.expect("ingest starts");
                let stop = stop.clone();
                (app.ops_address(), tokio::spawn(async move { app.run(stop).await.map_err(|e| e.to_string()) }))
            }
            Service::Dispatcher => {
                let app = dispatcher::App::build(&settings).await.expect("the dispatcher starts");
                let stop = stop.clone();
                (app.ops_address(), tokio::spawn(async move { app.run(stop).await.map_err(|e| e.to_string()) }))
            }
        };
        self.services.lock().await.push(Running { service, stop, task });
        wait_ready(ops).await;
        ops
    }

    /// Stops every running copy of a service gracefully.
    ///
    /// # Panics
    /// When one of them failed.
    pub async fn stop(&self, service: Service) {
        let mut services = self.services.lock().await;
        let (stopping, staying) = std::mem::take(&mut *services).into_iter().partition(|one| one.service == service);
        *services = staying;
        drop(services);
        let stopping: Vec<Running> = stopping;
        for one in &stopping {
            one.stop.cancel();
        }
        for one in stopping {
            one.task.await.expect("it does not panic").expect("it ends well");
        }
    }

    /// An administrator of a tenant.
    pub async fn admin(&self, tenant: Uuid) -> Api {
        self.session(tenant, "admin", Duration::from_secs(3600)).await
    }

    /// A new tenant, and its administrator.
    pub async fn tenant(&self) -> (Uuid, Api) {
        let tenant = Uuid::new_v4();
        (tenant, self.admin(tenant).await)
    }

    /// A new tenant, whose only webhook wants closed quotes, and the webhook's receiver.
    pub async fn subscriber(&self, behaviour: Behaviour) -> Subscriber {
        let ((tenant, api), receiver) = (self.tenant().await, Receiver::start(&self.ca, behaviour));
        let Created { id: webhook, secret } = api.create(&receiver.url("/"), &["quote.closed"]).await;
        Subscriber { tenant, api, receiver, webhook, secret }
    }

    /// A client with a session of this role.
    pub async fn session(&self, tenant: Uuid, role: &str, ttl: Duration) -> Api {
        self.session_of(tenant, "somebody", role, ttl).await
    }

    /// A client with a session of this user and role.
    pub async fn session_of(&self, tenant: Uuid, user: &str, role: &str, ttl: Duration) -> Api {
        let id = Uuid::new_v4().simple().to_string();
        let session = Session { tenant: TenantId::from(tenant), user: user.to_owned(), role: role.to_owned() };
        let new = NewSession { hash: CredentialHash::of(&id), session, expires_at: OffsetDateTime::now_utc() + ttl };
        let ledger = self.ledger.clone();
        unwound(self.home.spawn(async move { ledger.session_create(&new).await }).await)
            .expect("a session can be stored");
        Api { session: Some(id), ..self.anonymous().await }
    }

    /// A link that logs an administrator of a tenant in to the console, once.
    pub async fn console_link(&self, tenant: Uuid) -> String {
        self.console_link_of(tenant, "somebody").await
    }

    /// A link that logs this user in, once.
    pub async fn console_link_of(&self, tenant: Uuid, user: &str) -> String {
        let code = self.session_of(tenant, user, "login_code", Duration::from_secs(3600)).await;
        format!("http://{}/console/login/?code={}", code.address, code.session.unwrap_or_default())
    }

    /// A client without a session.
    ///
    /// # Panics
    /// When no API was started.
    pub async fn anonymous(&self) -> Api {
        Api { address: self.api.lock().await.expect("the API was started"), session: None }
    }

    /// Sets the address of an API that it did not start.
    pub async fn api_is_at(&self, address: SocketAddr) {
        *self.api.lock().await = Some(address);
    }

    /// Runs a statement on the test's database.
    pub async fn sql(&self, statement: &str) -> Vec<tokio_postgres::Row> {
        let (sessions, statement) = (Arc::clone(&self.sessions), statement.to_owned());
        unwound(self.home.spawn(async move { sessions.rows(&statement).await }).await)
    }

    /// Queries one number from the test's database.
    pub async fn count(&self, statement: &str) -> i64 {
        self.sql(statement).await[0].get(0)
    }

    /// Waits until a query says this number.
    pub async fn until_count(&self, statement: &str, expected: i64, deadline: Duration) {
        eventually_ok(deadline, || async {
            let count = self.count(statement).await;
            if count == expected { Ok(()) } else { Err(format!("{count} instead of {expected}: {statement}")) }
        })
        .await;
    }

    /// A database session in which these statements were run. Dropping it releases their locks.
    pub async fn database_session(&self, statements: &str) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.database_url, tokio_postgres::NoTls).await.expect("the database answers");
        tokio::spawn(connection);
        client.batch_execute(statements).await.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        client
    }

    /// How many sessions wait for a lock.
    pub async fn locked_out(&self) -> i64 {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        self.count(waiting).await
    }

    /// Waits until `count` sessions wait for a lock.
    pub async fn wait_for_locked_out(&self, count: i64) {
        let what = format!("{count} sessions wait for a lock");
        until(&what, SOON, || async { self.locked_out().await == count }).await;
    }

    /// Every queue of the service but that of notices, which nobody consumes.
    pub fn queues(&self) -> Vec<String> {
        let topology = broker::Topology::new(&self.names, &self.settings().retry.schedule.gaps());
        topology.queues.into_iter().map(|queue| queue.name).filter(|queue| *queue != self.names.notices()).collect()
    }

    /// The retry queues, one for each gap of the schedule.
    pub fn retry_queues(&self) -> Vec<String> {
        self.settings().retry.schedule.gaps().into_iter().map(|gap| self.names.retry(gap)).collect()
    }

    /// The generations that the ledger knows. Each has a queue that stands for the broker's disk.
    pub async fn generations(&self) -> Vec<Uuid> {
        let url = self.database_url.clone();
        let read = "SELECT id::text FROM (SELECT id FROM broker_generation UNION SELECT rebuild_id FROM broker_generation) AS all_of \
                    WHERE id IS NOT NULL";
        let rows = tokio::spawn(async move { sql(&url, read).await }).await.unwrap_or_default();
        rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect()
    }

    /// Makes the ledger expect a generation that the broker does not have.
    pub async fn lose_generation(&self) {
        let lost = self.generations().await;
        self.sql("UPDATE broker_generation SET id = gen_random_uuid()").await;
        for lost in lost {
            self.upstream.delete_queue(&self.names.generation(lost)).await;
        }
    }

    /// Ends the test. Returns in what `unsuccessful_deliveries` differs from `deliveries`.
    async fn end(&self, failed: bool) -> String {
        let differing = if failed { String::new() } else { self.differing().await };
        if failed || !differing.is_empty() {
            failure::explain(self).await;
        }
        if !self.is_shared() {
            self.clean_up().await;
        }
        differing
    }

    /// In what `unsuccessful_deliveries` differs from `deliveries`. Some tests leave no database, or no schema.
    async fn differing(&self) -> String {
        let Ok((client, connection)) = tokio_postgres::connect(&self.database_url, tokio_postgres::NoTls).await else {
            return String::new();
        };
        tokio::spawn(connection);
        let differ = "SELECT coalesce(string_agg(concat_ws(' ', d.id, d.state, d.next_attempt_at, 'but', u.state, \
                 u.next_attempt_at), '; '), '') FROM deliveries AS d \
             LEFT JOIN unsuccessful_deliveries AS u ON u.delivery_id = d.id \
             WHERE CASE WHEN d.state = 'succeeded' OR d.state = 'pending' AND d.next_attempt_at IS NULL \
                   THEN u.delivery_id IS NOT NULL \
                   ELSE (u.webhook_id, u.state, u.next_attempt_at) IS DISTINCT FROM (d.webhook_id, d.state, coalesce(d.next_attempt_at, d.created_at)) END";
        client.query_one(differ, &[]).await.map(|row| row.get(0)).unwrap_or_default()
    }

    async fn clean_up(&self) {
        let services = std::mem::take(&mut *self.services.lock().await);
        for running in &services {
            running.stop.cancel();
        }
        for running in services {
            let _ = tokio::time::timeout(SOON, running.task).await;
        }
        let _ = tokio::time::timeout(SOON, self.remove()).await;
    }

    /// Deletes files, queues and exchanges, and then the database: its name says that some may be left.
    async fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        let Ok(broker) = Outsider::try_connect(&self.amqp_url, "").await else { return };
        let topology = Topology::new(&self.names, &self.settings().retry.schedule.gaps());
        let generations = self.generations().await;
        let queues = topology.queues.iter().map(|queue| queue.name.clone());
        let sentinels = generations.into_iter().map(|generation| self.names.generation(generation));
        let queues: Vec<_> = queues.chain(sentinels).collect();
        let gone = join_all(queues.iter().map(|queue| broker.delete_queue(queue))).await;
        join_all(topology.exchanges.iter().map(|exchange| broker.delete_exchange(&exchange.name))).await;
        broker.close().await;
        if gone.contains(&false) {
            return;
        }
        let (url, drop) = (self.admin_url.clone(), format!("DROP DATABASE {} WITH (FORCE)", self.database));
        let _ = tokio::spawn(async move { sql(&url, &drop).await }).await;
    }
}

/// Returns the value of a task. A panic of the task continues in the test that waits for the task.
fn unwound<T>(joined: Result<T, JoinError>) -> T {
    joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Waits until `/readyz` answers 200 and every check has passed, also an optional one.
pub async fn wait_ready(ops: SocketAddr) {
    let ops = Api { address: ops, session: None };
    eventually_ok(SOON, || async {
        let answer = ops.get("/readyz").await;
        if passes(&answer) { Ok(()) } else { Err(format!("the service is ready: {}", answer.text)) }
    })
    .await;
}

/// Returns whether `/readyz` answers 200 and every check has passed.
#[must_use]
pub fn passes(answer: &Answer) -> bool {
    let passed =
        || answer.json()["checks"].as_object().is_some_and(|checks| checks.values().all(|check| check == "ok"));
    answer.status == 200 && passed()
}

/// One metric of `/metrics`: the sum over all lines that begin with `name`.
pub async fn metric(ops: SocketAddr, name: &str) -> f64 {
    let text = Api { address: ops, session: None }.get("/metrics").await.text;
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits until [`metric`] has this value.
pub async fn until_metric(ops: SocketAddr, name: &str, expected: f64, deadline: Duration) {
    eventually_ok(deadline, || async {
        let value = metric(ops, name).await;
        if value == expected { Ok(()) } else { Err(format!("{name} is {value}, not {expected}")) }
    })
    .await;
}
