//! Dead letters (quarantine): jobs that are parked in the queue of dead jobs, as no dispatcher can do them.

use domain::DeliveryId;
use uuid::Uuid;

use crate::{connect::pool::Ledger, delivery::waiting::due_now, error::LedgerError, statement::sql};

const PARK: &str = "INSERT INTO suspect_jobs (delivery_id, tries, marked_at, dead_reason) VALUES ($1, 0, now(), $2) \
     ON CONFLICT (delivery_id) DO UPDATE SET marked_at = now(), dead_reason = excluded.dead_reason";
const LIST_PARKED: &str = "SELECT delivery_id FROM suspect_jobs \
     WHERE dead_reason IS NOT NULL AND marked_at < now() - interval '1 minute' ORDER BY delivery_id";
const HAS_ENDED: &str = "SELECT EXISTS ( \
       SELECT FROM deliveries WHERE id = $1 AND state NOT IN ('pending', 'retrying')) AS has_ended";
const DELETE_MARKS: &str = "DELETE FROM suspect_jobs WHERE delivery_id = ANY ($1)";

impl Ledger {
    /// Returns true if a delivery that could not be loaded has ended, and only its event is gone. If not, the ledger has lost
    /// the delivery, or an operator erased it with its tenant.
    pub async fn delivery_has_ended(&self, delivery: DeliveryId) -> Result<bool, LedgerError> {
        let query = sql(HAS_ENDED).bind(delivery);
        self.run("delivery_has_ended", async |conn| query.value(conn).await).await
    }

    /// Notes that a delivery's job is about to be parked in the queue of dead jobs. Lost-job detection leaves it there. Its
    /// tries stay: it comes again if its process dies before that, and must not crash as many again.
    pub async fn job_park(&self, delivery: DeliveryId, reason: &str) -> Result<(), LedgerError> {
        let park = sql(PARK).bind(delivery).bind(reason);
        self.run("job_park", async |conn| park.execute(conn).await.map(|_| ())).await
    }

    /// The deliveries whose jobs are noted as parked for a minute at least, in the order of their ids: the jobs are on the queue of
    /// dead jobs, unless somebody removed them there.
    pub async fn jobs_parked(&self) -> Result<Vec<DeliveryId>, LedgerError> {
        self.run("jobs_parked", async |conn| sql(LIST_PARKED).values(conn).await).await
    }

    /// Forgets that jobs were parked: they are about to be published again. Makes their deliveries due now, as lost-job
    /// detection takes a job for lost that is published long after it is due.
    pub async fn jobs_unpark(&self, deliveries: &[DeliveryId]) -> Result<(), LedgerError> {
        let ids: Vec<Uuid> = deliveries.iter().map(|id| id.as_uuid()).collect();
        let forget = sql(DELETE_MARKS).bind(&ids);
        self.transaction("jobs_unpark", async |conn| {
            due_now(conn, &ids).await?;
            forget.execute(conn).await.map(|_| ())
        })
        .await
    }
}
