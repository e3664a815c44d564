//! Databases of tests: copies of a template that is migrated once.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use ledger::{Ledger, LedgerConfig};
use parking_lot::Mutex;
use tokio_postgres::{Client, NoTls, Row};

use crate::{outsider::sql, servers::repository};

/// The advisory lock of whoever makes the template.
const LOCK: i64 = 0x7e57;

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

/// The name of the migrated template on a server, made by the first test that needs it. A template of other migrations
/// or of another day is dropped: the schema has a partition for each day.
async fn template(server: &str) -> String {
    let mut templates = TEMPLATES.lock().await;
    if let Some(name) = templates.get(server) {
        return name.clone();
    }
    let session = Session::open(server).await;
    session.rows(&format!("SELECT pg_advisory_lock({LOCK})")).await;
    let today: String = session.rows("SELECT to_char(now() AT TIME ZONE 'utc', 'YYYYMMDD')").await[0].get(0);
    let name = format!("e2e_template_{:016x}_{today}", migrations());
    let found = session.rows("SELECT datname FROM pg_database WHERE datname LIKE 'e2e\\_template\\_%'").await;
    let found: Vec<String> = found.iter().map(|row| row.get(0)).collect();
    if !found.contains(&name) {
        for old in found {
            session.rows(&format!("DROP DATABASE {old} WITH (FORCE)")).await;
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
        max_connections: 1,
        application_name: "template of tests",
        patience: ledger::PATIENCE,
    };
    let ledger = Ledger::new(&config).expect("the URL is good");
    ledger.migrate().await.expect("the database can be migrated");
}

/// A fingerprint of all that makes the schema.
fn migrations() -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_below(&repository().join("crates/ledger"), &mut hasher);
    hasher.finish()
}

fn hash_below(folder: &Path, hasher: &mut DefaultHasher) {
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_below(&path, hasher);
        } else {
            (&path, fs::read(&path).expect("it can be read")).hash(hasher);
        }
    }
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
