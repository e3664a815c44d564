//! Which memory of the broker's the ledger believes in, and how far a rebuild of a lost one has come.

use diesel::{
    QueryableByName,
    sql_types::{Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{error::LedgerError, leader::Leader};

/// What the ledger knows of the broker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, QueryableByName)]
pub struct Generation {
    /// The queue that is there as long as the broker has not lost its disk. `None` before the first rebuild.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub id: Option<Uuid>,
    /// The queue of the rebuild that is under way.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub rebuilding: Option<Uuid>,
    /// When that queue was declared: what was published since is there. `None` before.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub rebuild_began_at: Option<OffsetDateTime>,
    /// The last delivery whose job the broker has confirmed.
    #[diesel(sql_type = SqlUuid)]
    pub rebuild_reached: Uuid,
}

const READ: &str = "SELECT id, rebuilding, rebuild_began_at, rebuild_reached FROM broker_generation";
const PLAN: &str = "UPDATE broker_generation SET rebuilding = $1, rebuild_began_at = NULL";
// By the database's clock, after the queue was declared: what is committed from now on is published on this memory.
const BEGIN: &str = "UPDATE broker_generation SET rebuild_began_at = clock_timestamp(), \
     rebuild_reached = '00000000-0000-0000-0000-000000000000' \
     RETURNING id, rebuilding, rebuild_began_at, rebuild_reached";
const REACH: &str = "UPDATE broker_generation SET rebuild_reached = $1";
const FINISH: &str = "UPDATE broker_generation SET id = rebuilding, verified_at = now(), rebuilding = NULL, \
     rebuild_began_at = NULL WHERE rebuilding IS NOT NULL";
const VERIFY: &str = "UPDATE broker_generation SET verified_at = now() WHERE verified_at < now() - interval '1 minute'";

impl Leader {
    /// What is known.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn generation(&mut self) -> Result<Generation, LedgerError> {
        self.run(async |conn| diesel::sql_query(READ).get_result(conn).await).await
    }

    /// Names the queue that a rebuild is about to declare: the same one again, should it die before it has.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_plan(&mut self, id: Uuid) -> Result<(), LedgerError> {
        let plan = diesel::sql_query(PLAN).bind::<SqlUuid, _>(id);
        self.run(async |conn| plan.execute(conn).await.map(|_| ())).await
    }

    /// The queue is declared: the rebuild begins, at the first delivery.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_begin(&mut self) -> Result<Generation, LedgerError> {
        self.run(async |conn| diesel::sql_query(BEGIN).get_result(conn).await).await
    }

    /// The broker has confirmed the jobs of the deliveries up to this one.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_reach(&mut self, reached: Uuid) -> Result<(), LedgerError> {
        let reach = diesel::sql_query(REACH).bind::<SqlUuid, _>(reached);
        self.run(async |conn| reach.execute(conn).await.map(|_| ())).await
    }

    /// Every delivery that waits has its job: the rebuild's queue is the one to believe in.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_finish(&mut self) -> Result<(), LedgerError> {
        self.run(async |conn| diesel::sql_query(FINISH).execute(conn).await.map(|_| ())).await
    }

    /// The queue was there again.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn generation_verify(&mut self) -> Result<(), LedgerError> {
        self.run(async |conn| diesel::sql_query(VERIFY).execute(conn).await.map(|_| ())).await
    }
}
