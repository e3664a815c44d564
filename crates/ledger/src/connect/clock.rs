//! The database's time, and whether it takes writes.

use std::time::{Duration, Instant};

use diesel::{
    prelude::*,
    result::{DatabaseErrorKind, Error},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::{connect::pool::Ledger, error::LedgerError, statement};

/// A reading of the database's clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The database's time.
    pub database: OffsetDateTime,
    /// This machine's time at the same moment.
    pub local: OffsetDateTime,
    /// The moment: the middle of the round trip. Both times are exact to half of it.
    pub at: Instant,
    /// How long the query took.
    pub round_trip: Duration,
}

/// Each transaction on a standby is read-only too.
const READ_CLOCK: &str =
    "SELECT clock_timestamp() AS now, current_setting('transaction_read_only')::boolean AS is_read_only";

/// Functions of the server.
pub(crate) mod sql {
    diesel::define_sql_function! {
        /// When the transaction began, by the database's clock.
        fn now() -> diesel::sql_types::Timestamptz;
    }
}

/// When the transaction began, by the database's clock.
pub(crate) async fn now(conn: &mut AsyncPgConnection) -> QueryResult<OffsetDateTime> {
    diesel::select(sql::now()).get_result(conn).await
}

impl Ledger {
    /// Reads the database's time. It must take writes, too.
    ///
    /// # Errors
    /// [`LedgerError::ReadOnly`] when it takes no writes, another error when it does not answer.
    pub async fn clock(&self) -> Result<ClockReading, LedgerError> {
        self.run("clock", async |conn| {
            let (began, local) = (Instant::now(), OffsetDateTime::now_utc());
            let (database, is_read_only) = statement::sql(READ_CLOCK).value(conn).await?;
            let round_trip = began.elapsed();
            if is_read_only {
                // The error is the one with which a server refuses a write.
                let text = Box::new("the database takes no writes".to_owned());
                return Err(Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, text));
            }
            let half = round_trip / 2;
            Ok(ClockReading { database, local: local + half, at: began + half, round_trip })
        })
        .await
    }
}
