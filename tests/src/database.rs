//! Databases of tests: copies of a template that is migrated once.

use std::collections::BTreeMap;

use ledger::{Ledger, LedgerConfig};
use parking_lot::Mutex;
use tokio_postgres::{Client, NoTls, Row};

use crate::outsider::sql;

/// The advisory lock of whoever makes the template.
const TEMPLATE_LOCK: i64 = 0x7e57;

/// The template of each server that this program uses.
static TEMPLATES: tokio::sync::Mutex<BTreeMap<String, String>> = tokio::sync::Mutex::const_new(BTreeMap::new());

/// Creates a database with the service's schema.
///
/// # Panics
/// When the server refuses it.
pub async fn create(server: &str, name: &str) {
    let template = template(server).await;
    sql(server, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
}

/// The URL of another database of the same server.
///
/// # Panics
/// When the URL names no database.
#[must_use]
pub fn with_database(url: &str, database: &str) -> String {
    let (url, parameters) = url.split_once('?').map_or((url, String::new()), |(url, rest)| (url, format!("?{rest}")));
    let (server, _) = url.rsplit_once('/').expect("the URL names a database");
    format!("{server}/{database}{parameters}")
}

/// Databases that earlier runs have left: templates of past days, and databases of tests that were interrupted. Other runs
/// may use younger ones.
const LEFT_DATABASES: &str = "SELECT datname FROM pg_database WHERE datname = 'e2e_template_new' \
     UNION ALL SELECT datname FROM pg_database WHERE datname ~ '^e2e_template_[0-9a-f]+_[0-9]+$' \
         AND right(datname, 8) < to_char(now() AT TIME ZONE 'utc' - interval '1 day', 'YYYYMMDD') \
     UNION ALL SELECT datname FROM pg_database WHERE datname ~ '^e2e_[0-9a-f]{14}$' \
         AND ('x' || substr(datname, 5, 8))::bit(32)::bigint < extract(epoch FROM now()) - 6 * 60 * 60";

/// The name of the migrated template on a server, made by the first test that needs it. It is of one day: the schema has a
/// partition for each day. Whoever makes it drops what earlier runs have left.
async fn template(server: &str) -> String {
    let mut templates = TEMPLATES.lock().await;
    if let Some(name) = templates.get(server) {
        return name.clone();
    }
    let session = Session::open(server).await;
    session.rows(&format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    let today: String = session.rows("SELECT to_char(now() AT TIME ZONE 'utc', 'YYYYMMDD')").await[0].get(0);
    let name = format!("e2e_template_{}_{today}", env!("SCHEMA"));
    let is_there = session.rows(&format!("SELECT 1 FROM pg_database WHERE datname = '{name}'")).await;
    if is_there.is_empty() {
        for left in session.rows(LEFT_DATABASES).await {
            session.rows(&format!("DROP DATABASE {} WITH (FORCE)", left.get::<_, &str>(0))).await;
        }
        let unfinished = "e2e_template_new";
        session.rows(&format!("CREATE DATABASE {unfinished}")).await;
        migrate(&with_database(server, unfinished)).await;
        session.rows(&format!("ALTER DATABASE {unfinished} RENAME TO {name}")).await;
    }
    templates.insert(server.to_owned(), name.clone());
    name
}

async fn migrate(url: &str) {
    let config = LedgerConfig {
        url: url.to_owned(),
        password_file: None,
        tls: Default::default(),
        max_connections: 1,
        application_name: "template of tests",
        call_timeout: ledger::CALL_TIMEOUT,
    };
    let ledger = Ledger::new(&config).expect("the URL is good");
    ledger.migrate().await.expect("the database can be migrated");
}

/// A session with a database.
pub struct Session(Client);

impl Session {
    /// Connects.
    ///
    /// # Panics
    /// When the database does not answer.
    pub async fn open(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the database answers");
        tokio::spawn(connection);
        Self(client)
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Panics
    /// When the database refuses it.
    pub async fn rows(&self, statement: &str) -> Vec<Row> {
        self.0.query(statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"))
    }
}

/// Sessions with one database, each for one statement at a time. Logging in costs far more than a statement.
pub struct Sessions {
    url: String,
    idle: Mutex<Vec<Session>>,
}

impl Sessions {
    /// Opens none yet.
    #[must_use]
    pub const fn of(url: String) -> Self {
        Self { url, idle: Mutex::new(Vec::new()) }
    }

    /// Runs a statement in a session that does nothing else, and returns its rows.
    ///
    /// # Panics
    /// When the database refuses it.
    pub async fn rows(&self, statement: &str) -> Vec<Row> {
        let idle = self.idle.lock().pop().filter(|session| !session.0.is_closed());
        let session = match idle {
            Some(session) => session,
            None => Session::open(&self.url).await,
        };
        let rows = session.rows(statement).await;
        self.idle.lock().push(session);
        rows
    }

    /// Ends all of them.
    pub fn close(&self) {
        self.idle.lock().clear();
    }
}
