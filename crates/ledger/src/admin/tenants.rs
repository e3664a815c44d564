//! What the ledger holds of a tenant that leaves.

use std::time::Duration;

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Double, Nullable, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, TenantId, WebhookId};
use uuid::Uuid;

use crate::{
    error::LedgerError,
    pool::{Ledger, PATIENCE},
};

/// How long after a webhook's `deleted_at` an ingest may still store a delivery to it. `deleted_at` is when the deleting
/// transaction began, and it commits within its patience (20 s). Until then an ingest reads the webhook as it was, and its
/// statement ends within its own patience and a tenth, when the server ends it (22 s). The last 3 s are for the commits.
pub const SETTLING: Duration = PATIENCE.saturating_mul(2).saturating_add(Duration::from_secs(5));

/// Deliveries that one statement counts: some tens of milliseconds.
const CHUNK: i64 = 50_000;

/// How far a tenant has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCondition {
    /// Webhooks that are not deleted.
    pub registered: i64,
    /// Deleted ones whose rows are there.
    pub deleted: i64,
    /// Webhooks whose waiting deliveries are not all cancelled yet.
    pub cancelling: i64,
    /// Notices that the broker has not confirmed.
    pub unpublished: i64,
    /// The time since the last deletion. `None` if there was none.
    pub last_deleted: Option<Duration>,
}

/// A part of a webhook's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub deliveries: u64,
    /// The last one, if there may be more.
    pub last: Option<DeliveryId>,
}

const CONDITION: &str = "SELECT \
       (SELECT count(*) FROM webhooks WHERE tenant_id = $1 AND deleted_at IS NULL) AS registered, \
       (SELECT count(*) FROM webhooks WHERE tenant_id = $1 AND deleted_at IS NOT NULL) AS deleted, \
       (SELECT count(*) FROM webhook_tasks \
        WHERE webhook_id IN (SELECT id FROM webhooks WHERE tenant_id = $1)) AS cancelling, \
       (SELECT count(*) FROM notices WHERE tenant_id = $1 AND leased_until IS NOT NULL) AS unpublished, \
       (SELECT extract(epoch FROM now() - max(deleted_at))::float8 FROM webhooks \
        WHERE tenant_id = $1 AND deleted_at IS NOT NULL) AS last_deleted";
// A webhook's log is read as the README says of it.
const COUNT: &str = "WITH chunk AS MATERIALIZED ( \
       SELECT id FROM deliveries WHERE webhook_id = ANY (ARRAY[$1]) AND id > $2 ORDER BY webhook_id, id LIMIT $3 \
     ) SELECT (SELECT count(*) FROM chunk) AS deliveries, (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS last";

#[derive(QueryableByName)]
struct ConditionRow {
    #[diesel(sql_type = BigInt)]
    registered: i64,
    #[diesel(sql_type = BigInt)]
    deleted: i64,
    #[diesel(sql_type = BigInt)]
    cancelling: i64,
    #[diesel(sql_type = BigInt)]
    unpublished: i64,
    #[diesel(sql_type = Nullable<Double>)]
    last_deleted: Option<f64>,
}

#[derive(QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    deliveries: i64,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    last: Option<Uuid>,
}

impl Ledger {
    /// How far a tenant has left.
    pub async fn tenant_condition(&self, tenant: TenantId) -> Result<TenantCondition, LedgerError> {
        let query = diesel::sql_query(CONDITION).bind::<SqlUuid, _>(tenant.as_uuid());
        let row: ConditionRow = self.run("tenant_condition", async |conn| query.get_result(conn).await).await?;
        let ConditionRow { registered, deleted, cancelling, unpublished, last_deleted } = row;
        let last_deleted = last_deleted.map(|ago| Duration::try_from_secs_f64(ago).unwrap_or_default());
        Ok(TenantCondition { registered, deleted, cancelling, unpublished, last_deleted })
    }

    /// Counts up to 50,000 of a webhook's deliveries after one.
    pub async fn deliveries_count(
        &self,
        webhook: WebhookId,
        after: Option<DeliveryId>,
    ) -> Result<Counted, LedgerError> {
        let query = diesel::sql_query(COUNT)
            .bind::<SqlUuid, _>(webhook.as_uuid())
            .bind::<SqlUuid, _>(after.map_or(Uuid::nil(), DeliveryId::as_uuid))
            .bind::<BigInt, _>(CHUNK);
        let CountRow { deliveries, last } =
            self.run("deliveries_count", async |conn| query.get_result(conn).await).await?;
        let last = last.filter(|_| deliveries == CHUNK).map(DeliveryId::from);
        Ok(Counted { deliveries: u64::try_from(deliveries).unwrap_or_default(), last })
    }
}
