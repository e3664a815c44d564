//! What the ledger holds of a tenant that leaves.

pub(crate) mod erasure;

use domain::{DeliveryId, TenantId, WebhookId};
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    statement::{rows, sql},
};

/// Deliveries that one statement counts: some tens of milliseconds.
const CHUNK_DELIVERIES: i64 = 50_000;

/// How far a tenant has left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantCondition {
    /// Webhooks that are not deleted.
    pub registered: i64,
    /// Deleted ones whose rows are there.
    pub deleted: i64,
    /// Webhooks whose waiting deliveries are not all cancelled yet.
    pub cancelling: i64,
    /// Notices that the broker has not confirmed.
    pub unpublished: i64,
    /// Keys of programs, expired ones too.
    pub keys: i64,
    /// The seconds since the last deletion. `None` if there was none.
    pub last_deleted: Option<f64>,
}

/// A part of a webhook's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedDeliveries {
    /// How many.
    pub deliveries: u64,
    /// The last one, if there may be more.
    pub last: Option<DeliveryId>,
}

const READ_CONDITION: &str = "SELECT \
       (SELECT count(*) FROM webhooks WHERE tenant_id = $1 AND deleted_at IS NULL) AS registered, \
       (SELECT count(*) FROM webhooks WHERE tenant_id = $1 AND deleted_at IS NOT NULL) AS deleted, \
       (SELECT count(*) FROM cancellations \
        WHERE webhook_id IN (SELECT id FROM webhooks WHERE tenant_id = $1)) AS cancelling, \
       (SELECT count(*) FROM notices WHERE tenant_id = $1 AND leased_until IS NOT NULL) AS unpublished, \
       (SELECT count(*) FROM api_keys WHERE tenant_id = $1) AS keys, \
       (SELECT extract(epoch FROM now() - max(deleted_at))::float8 FROM webhooks \
        WHERE tenant_id = $1 AND deleted_at IS NOT NULL) AS last_deleted";
// A webhook's log is read as the README says of it.
const COUNT_CHUNK: &str = "WITH chunk AS MATERIALIZED ( \
       SELECT id FROM deliveries WHERE webhook_id = ANY (ARRAY[$1]) AND id > $2 ORDER BY webhook_id, id LIMIT $3 \
     ) SELECT (SELECT count(*) FROM chunk) AS deliveries, (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS last";

rows! { TenantCondition { registered, deleted, cancelling, unpublished, keys, last_deleted } }

impl Ledger {
    /// How far a tenant has left.
    pub async fn tenant_condition(&self, tenant: TenantId) -> Result<TenantCondition, LedgerError> {
        let query = sql(READ_CONDITION).bind(tenant);
        self.run("tenant_condition", async |conn| query.get_result(conn).await).await
    }

    /// Counts up to 50,000 of a webhook's deliveries after one.
    pub async fn deliveries_count(
        &self,
        webhook: WebhookId,
        after: Option<DeliveryId>,
    ) -> Result<CountedDeliveries, LedgerError> {
        let query =
            sql(COUNT_CHUNK).bind(webhook).bind(after.map_or(Uuid::nil(), DeliveryId::as_uuid)).bind(CHUNK_DELIVERIES);
        let (deliveries, last): (i64, Option<DeliveryId>) =
            self.run("deliveries_count", async |conn| query.value(conn).await).await?;
        let last = last.filter(|_| deliveries == CHUNK_DELIVERIES);
        Ok(CountedDeliveries { deliveries: u64::try_from(deliveries).unwrap_or_default(), last })
    }
}
