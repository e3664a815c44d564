//! The cursor of untried deliveries, a column of `broker_generation`: each waiting delivery before it has a due
//! time, and is found by the index of waiting deliveries. The others are found by a walk from the cursor to the end of the ids.

use diesel::{
    OptionalExtension, QueryableByName,
    sql_types::{BigInt, Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{error::LedgerError, upkeep::leader::Leader};

/// The result of a step of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, QueryableByName)]
pub struct Indexed {
    /// The cursor: the first id that is not searched yet.
    #[diesel(sql_type = SqlUuid)]
    pub indexed_before: Uuid,
    /// Rows that were looked at.
    #[diesel(sql_type = BigInt)]
    pub looked: i64,
    /// Deliveries that got a due time.
    #[diesel(sql_type = BigInt)]
    pub indexed: i64,
    /// The earliest one of these times.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub earliest: Option<OffsetDateTime>,
}

impl Leader {
    /// Moves the cursor by one step: gives the untried deliveries among the next 1,000 from `cursor` on, where it is, to
    /// `end` their creation as their due time. Returns `None` during a rebuild.
    ///
    /// # Errors
    /// When the database does not answer, or somebody has locked a row. Then nothing has happened.
    pub async fn untried_index(&mut self, cursor: Uuid, end: Uuid) -> Result<Option<Indexed>, LedgerError> {
        let step = diesel::sql_query(format!(include_str!("index_untried.sql"), rows = 1_000));
        let step = step.bind::<SqlUuid, _>(cursor).bind::<SqlUuid, _>(end);
        self.run("untried_index", async |conn| step.get_result(conn).await.optional()).await
    }
}
