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

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

batch_statement! {
    LoadBodies -> (Binary,);
    jobs as arrays { delivery_id: Uuid => SqlUuid, occurred_at: OffsetDateTime => Timestamptz };
    concat!("SELECT e.body\n", include_str!("from_jobs.sql"))
}

batch_statement! {
    FindBodies -> (SqlUuid,);
    jobs as arrays { delivery_id: Uuid => SqlUuid, occurred_at: OffsetDateTime => Timestamptz };
    concat!("SELECT d.id\n", include_str!("from_jobs.sql"))
}

/// Those of the deliveries whose bodies the ledger has.
pub(crate) async fn with_bodies(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<BTreeSet<Uuid>> {
    let mut delivery_id = ids.to_vec();
    delivery_id.sort_unstable();
    let occurred_at = delivery_id.iter().map(|id| DeliveryId::from(*id).occurred_at()).collect();
    let rows: Vec<(Uuid,)> = (&FindBodies { delivery_id, occurred_at }).load(conn).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

impl Ledger {
    /// Loads the exact body of a delivery. `None` when the ledger no longer has it.
    ///
    /// # Errors
    /// When the database does not answer, or cannot read the row ([`LedgerError::of_row`]).
    pub async fn body_load(&self, delivery: DeliveryId) -> Result<Option<Bytes>, LedgerError> {
        let statement = LoadBodies { delivery_id: vec![delivery.as_uuid()], occurred_at: vec![delivery.occurred_at()] };
        let rows = self.run("body_load", async |conn| (&statement).load(conn).await).await;
        let rows: Vec<(Vec<u8>,)> = self.judged(&statement, rows).await?;
        Ok(rows.into_iter().next().map(|(body,)| body.into()))
    }
}
