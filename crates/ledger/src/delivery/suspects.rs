//! Suspects: jobs that may crash dispatchers.

use diesel::sql_types::{Bool, SmallInt, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::DeliveryId;
use uuid::Uuid;

use crate::{batch::batch_statement, connect::pool::Ledger, error::LedgerError};

// A mark that is over a day old does not count.
batch_statement! {
    MarkSuspects -> (SmallInt,);
    suspect { delivery: Uuid => SqlUuid, tries: i16 => SmallInt };
    "INSERT INTO suspect_jobs AS s (delivery_id, tries, marked_at) SELECT delivery, tries, now() FROM suspect \
      ON CONFLICT (delivery_id) DO UPDATE SET marked_at = now(), dead_reason = NULL, \
          tries = CASE WHEN s.marked_at < now() - interval '1 day' THEN excluded.tries \
                  ELSE greatest(s.tries, excluded.tries) END \
      RETURNING tries"
}

// A parked job that comes again all the same counts as begun at least once.
batch_statement! {
    CountTries -> (SmallInt, Bool);
    suspect { delivery: Uuid => SqlUuid };
    "SELECT CASE WHEN s.dead_reason IS NULL THEN s.tries ELSE greatest(s.tries, 1::smallint) END, \
            s.dead_reason IS NOT DISTINCT FROM 'unrecorded' \
      FROM suspect CROSS JOIN LATERAL (SELECT * FROM suspect_jobs WHERE delivery_id = suspect.delivery LIMIT 1) AS s \
      WHERE s.marked_at >= now() - interval '1 day'"
}

batch_statement! {
    ClearSuspects -> (SqlUuid,);
    cleared { delivery: Uuid => SqlUuid };
    "DELETE FROM suspect_jobs AS s USING cleared \
      WHERE s.delivery_id = cleared.delivery AND s.dead_reason IS NULL RETURNING s.delivery_id"
}

impl Ledger {
    /// Marks a job that may crash this process, before it begins for the `tries`th time. Returns how often it has begun
    /// without coming to an end, this time included. Idempotent.
    pub async fn suspect_mark(&self, delivery: DeliveryId, tries: u16) -> Result<u16, LedgerError> {
        let tries = i16::try_from(tries).unwrap_or(i16::MAX);
        let statement = MarkSuspects { delivery: vec![delivery.as_uuid()], tries: vec![tries] };
        let rows: Vec<(i16,)> = self.run("suspect_mark", async |conn| statement.load(conn).await).await?;
        let (tries,) = rows.into_iter().next().unwrap_or((1,));
        u16::try_from(tries).map_err(|_| LedgerError::Unreadable { column: "suspect_jobs.tries" })
    }

    /// The number of times that a job was marked and did not end: its process died, or still works on it. The second value
    /// is true if it was to be parked as `unrecorded`. A mark counts for a day.
    pub async fn suspect_tries(&self, delivery: DeliveryId) -> Result<(u16, bool), LedgerError> {
        let statement = CountTries { delivery: vec![delivery.as_uuid()] };
        let rows: Vec<(i16, bool)> = self.run("suspect_tries", async |conn| statement.load(conn).await).await?;
        let (tries, is_unrecorded) = rows.into_iter().next().unwrap_or_default();
        let tries = u16::try_from(tries).map_err(|_| LedgerError::Unreadable { column: "suspect_jobs.tries" })?;
        Ok((tries, is_unrecorded))
    }

    /// Deletes the mark of a job that came to an end or did no harm for a while. A parked job stays parked.
    pub async fn suspect_clear(&self, delivery: DeliveryId) -> Result<(), LedgerError> {
        let statement = ClearSuspects { delivery: vec![delivery.as_uuid()] };
        let _: Vec<(Uuid,)> = self.run("suspect_clear", async |conn| statement.load(conn).await).await?;
        Ok(())
    }
}
