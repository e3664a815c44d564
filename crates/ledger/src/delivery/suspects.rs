//! Suspects: jobs that may crash dispatchers.

use diesel::OptionalExtension;
use domain::DeliveryId;

use crate::{connect::pool::Ledger, error::LedgerError, statement::sql};

/// A mark that is over a day old does not count.
const MARK: &str = "INSERT INTO suspect_jobs AS s (delivery_id, tries, marked_at) VALUES ($1, $2, now()) \
     ON CONFLICT (delivery_id) DO UPDATE SET marked_at = now(), dead_reason = NULL, \
         tries = CASE WHEN s.marked_at < now() - interval '1 day' THEN excluded.tries \
                 ELSE greatest(s.tries, excluded.tries) END \
     RETURNING tries";
/// A parked job that comes again anyway counts as begun at least once.
const COUNT_TRIES: &str = "SELECT CASE WHEN dead_reason IS NULL THEN tries ELSE greatest(tries, 1::smallint) END, \
            dead_reason IS NOT DISTINCT FROM 'unrecorded' \
     FROM suspect_jobs WHERE delivery_id = $1 AND marked_at >= now() - interval '1 day'";
const CLEAR: &str = "DELETE FROM suspect_jobs WHERE delivery_id = $1 AND dead_reason IS NULL";

impl Ledger {
    /// Marks a job that may crash this process, before it begins for the `tries`th time. Returns how often it has begun
    /// without coming to an end, this time included. Idempotent.
    pub async fn suspect_mark(&self, delivery: DeliveryId, tries: u16) -> Result<u16, LedgerError> {
        let mark = sql(MARK).bind(delivery).bind(i16::try_from(tries).unwrap_or(i16::MAX));
        read_tries(self.run("suspect_mark", async |conn| mark.value(conn).await).await?)
    }

    /// The number of times that a job was marked and did not end: its process died, or still works on it. The second value
    /// is true if it was to be parked as `unrecorded`. A mark counts for a day.
    pub async fn suspect_tries(&self, delivery: DeliveryId) -> Result<(u16, bool), LedgerError> {
        let count = sql(COUNT_TRIES).bind(delivery);
        let found = self.run("suspect_tries", async |conn| count.value(conn).await.optional()).await?;
        let (tries, is_unrecorded) = found.unwrap_or_default();
        Ok((read_tries(tries)?, is_unrecorded))
    }

    /// Deletes the mark of a job that came to an end or did no harm for a while. A parked job stays parked.
    pub async fn suspect_clear(&self, delivery: DeliveryId) -> Result<(), LedgerError> {
        let clear = sql(CLEAR).bind(delivery);
        self.run("suspect_clear", async |conn| clear.execute(conn).await.map(|_| ())).await
    }
}

fn read_tries(tries: i16) -> Result<u16, LedgerError> {
    u16::try_from(tries).map_err(|_| LedgerError::Unreadable { column: "suspect_jobs.tries" })
}
