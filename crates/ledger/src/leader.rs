//! The one process at a time that looks after the ledger: reconciles it with the queues, makes and drops partitions.

use std::time::Duration;

use diesel::{QueryableByName, result::Error, sql_types::Bool};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use crate::{
    error::LedgerError,
    pool::{Ledger, failed},
};

/// Held for as long as the leader's connection stands.
const LEADER_LOCK: i64 = 0x7765_6268_6c65_6164;
/// The leader gives up what takes longer. Above the statements' own limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// While the leader waits for a lock, everybody else waits behind it: so it hardly waits.
const SESSION: &str = "SET lock_timeout = '500ms'; SET jit = off";

/// A process that would lead: a connection of its own.
pub struct Candidate(AsyncPgConnection);

/// The leader. All that it does goes over the connection that holds the lock: without the lock it can do nothing.
pub struct Leader(AsyncPgConnection);

impl Ledger {
    /// Makes the connection that a leader needs; it does not count among the pool's.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn candidate(&self) -> Result<Candidate, LedgerError> {
        let mut conn = self.connection().await?;
        conn.batch_execute(SESSION).await?;
        Ok(Candidate(conn))
    }
}

impl Candidate {
    /// Becomes the leader, unless another process is.
    ///
    /// # Errors
    /// When the database does not answer: then the connection is of no more use.
    pub async fn lead(mut self) -> Result<Result<Leader, Self>, LedgerError> {
        #[derive(QueryableByName)]
        struct Got {
            #[diesel(sql_type = Bool)]
            got: bool,
        }
        let claim = format!("SELECT pg_try_advisory_lock({LEADER_LOCK}) AS got");
        let claimed = in_time(diesel::sql_query(claim).get_result::<Got>(&mut self.0)).await??;
        Ok(if claimed.got { Ok(Leader(self.0)) } else { Err(self) })
    }
}

impl Leader {
    /// Runs statements on the leader's connection, with a deadline.
    pub(crate) async fn run<T, F>(&mut self, statements: F) -> Result<T, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, Error>,
    {
        let result = in_time(statements(&mut self.0)).await?;
        result.map_err(|error| failed(error, &mut self.0))
    }
}

async fn in_time<T>(statements: impl Future<Output = T>) -> Result<T, LedgerError> {
    tokio::time::timeout(PATIENCE, statements).await.map_err(|_| LedgerError::Timeout(PATIENCE))
}
