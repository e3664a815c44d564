//! Deliveries that were erased with their tenant. The broker may still have jobs of them.

use diesel::{
    QueryableByName,
    sql_types::{Bool, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::DeliveryId;

use crate::{error::LedgerError, pool::Ledger};

/// An event may be gone before all of its deliveries are. Then those that are left belong to deleted webhooks.
const IS_ERASED: &str = "SELECT EXISTS (SELECT FROM erased_deliveries WHERE delivery_id = $1) OR EXISTS ( \
       SELECT FROM deliveries AS d JOIN webhooks AS w ON w.id = d.webhook_id \
       WHERE d.id = $1 AND w.deleted_at IS NOT NULL \
     ) AS is_erased";

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Bool)]
    is_erased: bool,
}

impl Ledger {
    /// Whether a delivery that could not be loaded was erased, or is about to be. Otherwise the ledger has lost it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_is_erased(&self, delivery: DeliveryId) -> Result<bool, LedgerError> {
        let query = diesel::sql_query(IS_ERASED).bind::<SqlUuid, _>(delivery.as_uuid());
        let row: Row = self.run("delivery_is_erased", async |conn| query.get_result(conn).await).await?;
        Ok(row.is_erased)
    }
}
