//! The broker's generation: the sentinel queue that is lost only with the broker's disk, and a rebuild's progress.

use diesel::{
    QueryableByName,
    sql_types::{Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{error::LedgerError, upkeep::leader::Leader};

/// What the ledger knows of the broker's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, QueryableByName)]
pub struct Generation {
    /// The sentinel queue, which exists until the broker loses its disk. `None` until one is adopted.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub id: Option<Uuid>,
    /// The sentinel queue of the rebuild under way.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub rebuilding: Option<Uuid>,
    /// When that queue was declared: no job published since then is lost. `None` until then.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub rebuild_began_at: Option<OffsetDateTime>,
    /// The cursor: the broker has confirmed the jobs of the deliveries up to this one.
    #[diesel(sql_type = SqlUuid)]
    pub rebuild_reached: Uuid,
}

const READ: &str = "SELECT id, rebuilding, rebuild_began_at, rebuild_reached FROM broker_generation";
const PLAN: &str = "UPDATE broker_generation SET rebuilding = $1, rebuild_began_at = NULL";
// The database's time, after the queue is declared: what commits later is published to this generation.
const BEGIN: &str = "UPDATE broker_generation SET rebuild_began_at = clock_timestamp(), \
     rebuild_reached = '00000000-0000-0000-0000-000000000000' \
     RETURNING id, rebuilding, rebuild_began_at, rebuild_reached";
const REACH: &str = "UPDATE broker_generation SET rebuild_reached = $1";
const FINISH: &str = "UPDATE broker_generation SET id = rebuilding, verified_at = now(), rebuilding = NULL, \
     rebuild_began_at = NULL WHERE rebuilding IS NOT NULL";
const VERIFY: &str = "UPDATE broker_generation SET verified_at = now() WHERE verified_at < now() - interval '1 minute'";

impl Leader {
    /// Reads the generation.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn generation(&mut self) -> Result<Generation, LedgerError> {
        self.run(async |conn| diesel::sql_query(READ).get_result(conn).await).await
    }

    /// Names the queue that a rebuild is about to declare. If it dies, the next one uses the same name.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_plan(&mut self, id: Uuid) -> Result<(), LedgerError> {
        let plan = diesel::sql_query(PLAN).bind::<SqlUuid, _>(id);
        self.run(async |conn| plan.execute(conn).await.map(|_| ())).await
    }

    /// Begins the rebuild at the first delivery, once its queue is declared.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_begin(&mut self) -> Result<Generation, LedgerError> {
        self.run(async |conn| diesel::sql_query(BEGIN).get_result(conn).await).await
    }

    /// Moves the cursor: the broker has confirmed the jobs up to `reached`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_reach(&mut self, reached: Uuid) -> Result<(), LedgerError> {
        let reach = diesel::sql_query(REACH).bind::<SqlUuid, _>(reached);
        self.run(async |conn| reach.execute(conn).await.map(|_| ())).await
    }

    /// Ends the rebuild: every waiting delivery has its job, and the rebuild's queue is the sentinel.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_finish(&mut self) -> Result<(), LedgerError> {
        self.run(async |conn| diesel::sql_query(FINISH).execute(conn).await.map(|_| ())).await
    }

    /// Notes that the sentinel queue is there, at most once a minute.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn generation_verify(&mut self) -> Result<(), LedgerError> {
        self.run(async |conn| diesel::sql_query(VERIFY).execute(conn).await.map(|_| ())).await
    }
}
