//! Jobs whose deliveries could not be loaded: the broker may still have jobs of deliveries that are over.

use diesel::{
    QueryableByName,
    sql_types::{Bool, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use domain::DeliveryId;

use crate::{error::LedgerError, pool::Ledger};

/// An event may be gone before all of its deliveries are: in an erasure, where those that are left belong to deleted
/// webhooks, and with its body, where no delivery waits.
const LOOK: &str = "SELECT \
       EXISTS (SELECT FROM erased_deliveries WHERE delivery_id = $1) OR EXISTS ( \
         SELECT FROM deliveries AS d JOIN webhooks AS w ON w.id = d.webhook_id \
         WHERE d.id = $1 AND w.deleted_at IS NOT NULL \
       ) AS is_erased, \
       EXISTS (SELECT FROM deliveries WHERE id = $1 AND state NOT IN ('pending', 'retrying')) AS has_ended";

/// The state of a delivery that could not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, QueryableByName)]
pub struct Unloaded {
    /// It was erased with its tenant, or is about to be.
    #[diesel(sql_type = Bool)]
    pub is_erased: bool,
    /// It has ended, and its body is no longer kept.
    #[diesel(sql_type = Bool)]
    pub has_ended: bool,
}

impl Ledger {
    /// Looks why a delivery could not be loaded. If it was neither erased nor has ended, the ledger has lost it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_unloaded(&self, delivery: DeliveryId) -> Result<Unloaded, LedgerError> {
        let query = diesel::sql_query(LOOK).bind::<SqlUuid, _>(delivery.as_uuid());
        self.run("delivery_unloaded", async |conn| query.get_result(conn).await).await
    }
}
