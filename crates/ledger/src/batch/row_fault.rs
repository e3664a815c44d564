//! Distinguishes an error of a row's own data from an error of the server, by its SQLSTATE. Diesel passes on no SQLSTATE. So a
//! statement that failed is run once more on a connection without diesel, in a transaction that is rolled back.

use diesel::{backend::Backend, pg::Pg, query_builder::QueryBuilder, result::Error};
use domain::error_chain;
use tokio::time::timeout;

use crate::{
    batch::Batches,
    connect::{client, pool::Ledger},
    error::LedgerError,
};

/// The classes of errors that a row's own data causes: data exceptions, constraints, program limits, and damaged rows.
fn is_of_row(sqlstate: &str) -> bool {
    ["22", "23", "54"].iter().any(|class| sqlstate.starts_with(class)) || ["XX001", "XX002"].contains(&sqlstate)
}

impl Ledger {
    /// Returns what a statement came to. An error of a row's own data becomes [`LedgerError::Row`].
    pub(crate) async fn judged<T>(
        &self,
        statement: &impl Batches,
        result: Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        match result {
            Err(LedgerError::Query(error @ Error::DatabaseError(..))) => match self.sqlstate(statement).await {
                Some(sqlstate) if is_of_row(&sqlstate) => Err(LedgerError::Row { sqlstate }),
                _ => Err(LedgerError::Query(error)),
            },
            other => other,
        }
    }

    /// Returns true if a statement fails by a row's own data. It has no effect.
    pub(crate) async fn fails_by_row(&self, statement: &impl Batches) -> bool {
        self.sqlstate(statement).await.is_some_and(|sqlstate| is_of_row(&sqlstate))
    }

    /// The SQLSTATE with which a statement fails, if it still does and the server says so in time.
    async fn sqlstate(&self, statement: &impl Batches) -> Option<String> {
        let _one_at_a_time = self.probes.acquire().await.ok()?;
        let mut text = <Pg as Backend>::QueryBuilder::default();
        statement.to_sql(&mut text, &Pg).ok()?;
        // The server may have no connection more than the pool's. Another caller may open one in place of this.
        drop(self.connection().await.ok()?);
        let probe = async {
            let mut client = client(&self.config, &self.context.latest_host).await.ok()?;
            let transaction = client.transaction().await.ok()?;
            // A server that is out of transaction ids says so by the class of a row's own errors.
            transaction.batch_execute("SELECT pg_current_xact_id()").await.ok()?;
            let failed = transaction.query_typed(&text.finish(), &statement.arrays()).await.err()?;
            tracing::debug!(error = error_chain(&failed), "a statement fails again");
            failed.code().map(|code| code.code().to_owned())
        };
        timeout(self.config.call_timeout, probe).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_data_are_a_rows_own() {
        for own in ["22003", "22021", "23505", "23514", "54000", "XX001", "XX002"] {
            assert!(is_of_row(own), "{own}");
        }
        for servers in
            ["53100", "53200", "53300", "55P03", "40P01", "40001", "42703", "42P01", "57014", "57P01", "XX000"]
        {
            assert!(!is_of_row(servers), "{servers}");
        }
    }
}
