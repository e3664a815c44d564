//! Whether a connection has a session of its own on the server. The leader's lock, prepared statements and the settings
//! of a connection last as long as its session. A pooler that lends server connections by transaction or by statement
//! breaks all of them, without an error at first.
//!
//! Each session is marked. A pooler that lends by transaction hands a marked session to the next client that asks, as
//! soon as no transaction is open on it. One that lends by session clears it before (`DISCARD ALL`).

use std::time::{Duration, Instant};

use diesel::{
    ConnectionError, QueryResult,
    result::{DatabaseErrorKind, Error},
};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use domain::error_chain;
use parking_lot::Mutex;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::{
    connect::driver::{Driver, not_connected, reason},
    error::LedgerError,
};

/// A server's session setting that nobody else uses. It is empty in a session that nobody has used.
const MARK_SETTING: &str = "webhooks.session";
/// The name under which the server reports a session that is not ours alone: the constraint of its error.
const SHARED_CONSTRAINT: &str = "session_of_one_client";
/// A pooler that lends by session may have no second connection to give. That is no fault.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Of the connections that a process opens within this time, one is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The mark of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionMark(Uuid);

impl SessionMark {
    fn new() -> Self {
        Self(Uuid::new_v4())
    }

    fn set(self) -> String {
        format!("SET {MARK_SETTING} = '{}'", self.0)
    }

    fn check(self) -> String {
        refuse_if(&format!("current_setting('{MARK_SETTING}', true) IS DISTINCT FROM '{}'", self.0))
    }

    /// Gives a session a mark that its holder knows, together with `settings`.
    pub(crate) async fn replace(conn: &mut AsyncPgConnection, settings: &str) -> QueryResult<Self> {
        let mark = Self::new();
        conn.batch_execute(&format!("{settings}; {}", mark.set())).await?;
        Ok(mark)
    }

    /// Checks that the session still has this mark.
    ///
    /// # Errors
    /// One that [`is_shared`] knows.
    pub(crate) async fn check_on(self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        conn.batch_execute(&self.check()).await
    }
}

/// A statement in the simple protocol, which every pooler passes on.
fn refuse_if(condition: &str) -> String {
    format!(
        "DO $$ BEGIN IF {condition} THEN RAISE EXCEPTION 'this session belongs to several clients' \
         USING ERRCODE = 'check_violation', CONSTRAINT = '{SHARED_CONSTRAINT}'; END IF; END $$"
    )
}

/// Whether the server said that the session is not this connection's alone.
pub(crate) fn is_shared(error: &Error) -> bool {
    matches!(error, Error::DatabaseError(DatabaseErrorKind::CheckViolation, said)
        if said.constraint_name() == Some(SHARED_CONSTRAINT))
}

/// What the connections of one process know together.
#[derive(Default)]
pub(crate) struct ServerSessions {
    /// When a second connection has found no mark while the first one was idle.
    were_own: Mutex<Option<Instant>>,
}

impl ServerSessions {
    /// Marks the session of a new connection, to which nothing was said yet, and looks for the mark from a second
    /// connection, unless that was done just now. A pooler that lends by transaction gives it the session of the first
    /// one, which is idle. Another client may be quicker, but it finds the mark too.
    ///
    /// # Errors
    /// [`LedgerError::SharedSession`], or the server's. Other faults of the second connection prove nothing.
    pub(crate) async fn claim(
        &self,
        (settings, tls): (&Config, MakeRustlsConnect),
        client: &Client,
        driver: &mut Driver,
    ) -> Result<(), ConnectionError> {
        let mark = mark(client, driver).await?;
        if self.were_own.lock().is_some_and(|at| at.elapsed() < PROBE_INTERVAL) {
            return Ok(());
        }
        match tokio::time::timeout(PROBE_TIMEOUT, probe(settings, tls)).await {
            Ok(Ok(())) => *self.were_own.lock() = Some(Instant::now()),
            Ok(Err(error)) if matches!(reason(&error), Some(LedgerError::SharedSession)) => return Err(error),
            Ok(Err(error)) => {
                let error = error_chain(&error);
                tracing::debug!(error, "no second connection to look at the first one's session");
            }
            Err(_) => tracing::debug!("no second connection in time to look at the first one's session"),
        }
        send_statements(client, driver, &mark.check()).await
    }

    /// Probes again at the next connection.
    pub(crate) fn forget(&self) {
        *self.were_own.lock() = None;
    }
}

async fn probe(settings: &Config, tls: MakeRustlsConnect) -> Result<(), ConnectionError> {
    let connected = settings.connect(tls).await;
    let (client, mut driver) = connected.map_err(|error| ConnectionError::BadConnection(error.to_string()))?;
    mark(&client, &mut driver).await.map(drop)
}

/// Marks a session unless it is marked already.
async fn mark(client: &Client, driver: &mut Driver) -> Result<SessionMark, ConnectionError> {
    let mark = SessionMark::new();
    let unmarked = refuse_if(&format!("current_setting('{MARK_SETTING}', true) <> ''"));
    send_statements(client, driver, &format!("{unmarked}; {}", mark.set())).await?;
    Ok(mark)
}

/// Sends statements before diesel has the connection: it prepares statements at once, which fails at such a pooler for
/// reasons that nobody understands.
async fn send_statements(client: &Client, driver: &mut Driver, statements: &str) -> Result<(), ConnectionError> {
    let said = tokio::select! {
        said = client.batch_execute(statements) => said,
        ended = driver => Err(ended.err().ok_or_else(closed)?),
    };
    said.map_err(|error| match error.as_db_error().and_then(|said| said.constraint()) {
        Some(SHARED_CONSTRAINT) => not_connected(LedgerError::SharedSession),
        _ => ConnectionError::BadConnection(error.to_string()),
    })
}

fn closed() -> ConnectionError {
    ConnectionError::BadConnection("the server closed the connection".to_owned())
}
