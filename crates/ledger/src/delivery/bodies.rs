//! Long bodies, loaded one at a time, and which bodies there are.

use std::collections::BTreeSet;

use bytes::Bytes;
use diesel::{
    QueryResult,
    sql_types::{Binary, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::DeliveryId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::{batch_statement, plan_with_values},
    connect::pool::Ledger,
    error::LedgerError,
    partitions::Week,
};

batch_statement! {
    LoadBodies -> (Binary,), of week;
    jobs as arrays { delivery_id: Uuid => SqlUuid, occurred_at: OffsetDateTime => Timestamptz };
    concat!("SELECT e.body\n", include_str!("from_jobs.sql"))
}

batch_statement! {
    FindBodies -> (SqlUuid,);
    jobs as arrays { delivery_id: Uuid => SqlUuid, occurred_at: OffsetDateTime => Timestamptz };
    include_str!("find_bodies.sql")
}

/// Those of the deliveries whose bodies the ledger has. The rest of the transaction is planned with its values too.
pub(crate) async fn with_bodies(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<BTreeSet<Uuid>> {
    plan_with_values(conn).await?;
    let mut found = BTreeSet::new();
    // The time of a statement grows with the square of the number of its ids.
    for some in ids.chunks(100) {
        let occurred_at = some.iter().map(|id| DeliveryId::from(*id).occurred_at()).collect();
        let rows: Vec<(Uuid,)> = (&FindBodies { delivery_id: some.to_vec(), occurred_at }).load(conn).await?;
        found.extend(rows.into_iter().map(|(id,)| id));
    }
    Ok(found)
}

impl Ledger {
    /// Loads the exact body of a delivery. `None` when the ledger no longer has it.
    ///
    /// # Errors
    /// When the database does not answer, or cannot read the row ([`LedgerError::of_row`]).
    pub async fn body_load(&self, delivery: DeliveryId) -> Result<Option<Bytes>, LedgerError> {
        let (delivery_id, occurred_at) = (vec![delivery.as_uuid()], vec![delivery.occurred_at()]);
        let statement = LoadBodies { week: Week::of(delivery), delivery_id, occurred_at };
        let rows = self.run("body_load", async |conn| (&statement).load(conn).await).await;
        let rows: Vec<(Vec<u8>,)> = self.judged(&statement, rows).await?;
        Ok(rows.into_iter().next().map(|(body,)| body.into()))
    }
}
