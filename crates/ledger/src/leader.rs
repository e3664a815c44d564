//! The leader: the one process at a time that reconciles the ledger with the queues, and makes and drops partitions.

pub(crate) mod find_waiting;
pub(crate) mod generation;
pub(crate) mod leftovers;
pub(crate) mod partitions;
pub(crate) mod retention;
pub(crate) mod untried;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use diesel::result::Error;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};
use tokio::{
    sync::{Mutex, watch},
    task::AbortHandle,
};
use uuid::Uuid;

use crate::{
    connect::{
        pool::{Ledger, failed},
        session::SessionMark,
        timings::Timings,
    },
    error::LedgerError,
    statement::sql,
};

/// Held as long as the leader's connection stands.
pub(crate) const LEADER_LOCK: i64 = 0x7765_6268_6c65_6164;
/// The limit for the leader's calls, above the server's `statement_timeout`.
pub(crate) const LEADER_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit for a commit that deletes a day's files: 3 GB a second here.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How often an idle leader checks its session, well within the session's limits.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// While the leader waits for a lock, everybody else waits behind it, so it waits 500 ms at most. The server ends the
/// session of a vanished host, and frees the lock: after 20 s idle, or 20 s in which nobody takes the answer (`connect.rs`).
///
/// With this `work_mem` the server looks ids up in a hashed set, however large it believes a day to be. With less it
/// may search all of the set for each row. It takes only as much memory as the set needs. Without bitmap scans, a plan
/// that was made while a table was nearly empty reads the next rows of an index, and does not sort all of them.
const SESSION_SETTINGS: &str = "SET lock_timeout = '500ms'; SET jit = off; SET work_mem = '64MB'; SET enable_bitmapscan = off; \
     SET idle_session_timeout = '20s'";

/// A process that may become the leader.
pub struct Candidate {
    conn: AsyncPgConnection,
    mark: SessionMark,
    timings: Timings,
}

/// The leader. It does everything over the connection that holds the lock, so it can do nothing without the lock.
pub struct Leader {
    conn: Arc<Mutex<AsyncPgConnection>>,
    timings: Timings,
    lost: watch::Receiver<bool>,
    heart: AbortHandle,
    pub(crate) leftovers: LeftoversCursor,
}

/// The position of the scans for leftovers: the scan that is under way, and the last key that it read.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeftoversCursor {
    pub(crate) scan: usize,
    pub(crate) after: (Uuid, Uuid),
}

impl Ledger {
    /// Opens a connection for a leader, which does not count among the pool's. The server closes it after 20 s idle.
    pub async fn candidate(&self) -> Result<Candidate, LedgerError> {
        let mut conn = self.connection().await?;
        let mark = match SessionMark::replace(&mut conn, SESSION_SETTINGS).await {
            Ok(mark) => mark,
            Err(error) => return Err(failed(error, &mut conn).await),
        };
        Ok(Candidate { conn, mark, timings: self.timings() })
    }
}

impl Candidate {
    /// Becomes the leader, unless another process is. Call it inside the runtime that runs the leader.
    ///
    /// # Errors
    /// When the database does not answer or takes no writes. The connection is then closed.
    pub async fn lead(mut self) -> Result<Result<Leader, Self>, LedgerError> {
        let claim = format!(
            "SELECT pg_try_advisory_lock({LEADER_LOCK}) AS got, \
                    current_setting('transaction_read_only')::boolean AS is_read_only"
        );
        let (is_claimed, is_read_only) = match in_time(sql(claim).value::<(bool, bool)>(&mut self.conn)).await? {
            Ok(claimed) => claimed,
            Err(error) => return Err(failed(error, &mut self.conn).await),
        };
        if is_read_only {
            return Err(LedgerError::ReadOnly);
        }
        Ok(if is_claimed { Ok(Leader::new(self)) } else { Err(self) })
    }
}

impl Leader {
    fn new(Candidate { conn, mark, timings }: Candidate) -> Self {
        let conn = Arc::new(Mutex::new(conn));
        let (sender, lost) = watch::channel(false);
        let heart = tokio::spawn(beat(Arc::downgrade(&conn), mark, sender)).abort_handle();
        Self { conn, timings, lost, heart, leftovers: LeftoversCursor::default() }
    }

    /// Completes once the connection is lost, even while it is idle: another process may lead then.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lost = self.lost.clone();
        async move {
            let _ = lost.wait_for(|lost| *lost).await;
        }
    }

    /// Runs statements on the leader's connection, within [`LEADER_CALL_TIMEOUT`]. `call` is the name of the calling function, for
    /// the metric.
    pub(crate) async fn run<T, F>(&mut self, call: &'static str, statements: F) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        self.run_within(LEADER_CALL_TIMEOUT, call, statements).await
    }

    /// Runs statements in a transaction, and commits it within [`COMMIT_TIMEOUT`]: no limit of the server ends a commit.
    pub(crate) async fn run_then_commit<F>(&mut self, call: &'static str, statements: F) -> Result<(), LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<(), Error>,
    {
        self.run(call, async |conn| {
            AnsiTransactionManager::begin_transaction(conn).await?;
            let done = statements(conn).await;
            if done.is_err() {
                let _ = AnsiTransactionManager::rollback_transaction(conn).await;
            }
            done
        })
        .await?;
        let commit = async |conn: &mut AsyncPgConnection| AnsiTransactionManager::commit_transaction(conn).await;
        self.run_within(COMMIT_TIMEOUT, call, commit).await
    }

    async fn run_within<T, F>(
        &mut self,
        call_timeout: Duration,
        call: &'static str,
        statements: F,
    ) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        let done = async {
            let mut conn = self.conn.lock().await;
            let _timing = self.timings.begin(call);
            match statements(&mut conn).await {
                Ok(done) => Ok(done),
                Err(error) => Err(failed(error, &mut conn).await),
            }
        };
        tokio::time::timeout(call_timeout, done).await.map_err(|_| LedgerError::Timeout(call_timeout))?
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

/// Keeps the session from being idle for long, whatever the leader waits for, and checks that it is the one that holds
/// the lock. Ends with the leader or the connection.
async fn beat(conn: Weak<Mutex<AsyncPgConnection>>, mark: SessionMark, lost: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        // The connection is held only during a beat, as it must be dropped with the leader.
        let Some(conn) = conn.upgrade() else { return };
        // The leader uses the connection: it is not idle.
        let Ok(mut conn) = conn.try_lock() else { continue };
        if !matches!(in_time(mark.check_on(&mut conn)).await, Ok(Ok(()))) {
            lost.send_replace(true);
            return;
        }
    }
}

async fn in_time<T>(statements: impl Future<Output = T>) -> Result<T, LedgerError> {
    tokio::time::timeout(LEADER_CALL_TIMEOUT, statements).await.map_err(|_| LedgerError::Timeout(LEADER_CALL_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pg_locks` shows the lock as two halves.
    #[test]
    fn the_runbook_asks_for_this_lock_alone() {
        let runbooks = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/runbooks.md");
        let halves = format!("({}, {}, 1)", LEADER_LOCK >> 32, LEADER_LOCK & 0xffff_ffff);
        assert!(std::fs::read_to_string(runbooks).unwrap().contains(&halves), "{halves}");
    }
}
