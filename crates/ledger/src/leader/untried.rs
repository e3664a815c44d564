//! The cursor of untried deliveries, a column of `broker_generation`: each waiting delivery before it has a due
//! time, and is found by the index of waiting deliveries. The others are found by a walk from the cursor to the end of the ids.

use diesel::{prelude::*, sql_types::Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    connect::pool::Ledger,
    error::LedgerError,
    leader::Leader,
    statement::{rows, sql},
    tables::deliveries,
};

/// Rows that a step looks at.
const ROWS: u16 = 1_000;

const PASS: &str = "UPDATE broker_generation SET indexed_before = $2 WHERE indexed_before = $1 AND rebuild_id IS NULL";

// The change of a step to the rows of deliveries.
batch_statement! {
    IndexDeliveries -> (SqlUuid,);
    job { delivery: Uuid => SqlUuid };
    " UPDATE deliveries AS d SET next_attempt_at = d.created_at FROM job \
      WHERE d.id = job.delivery AND d.state = 'pending' AND d.next_attempt_at IS NULL RETURNING d.id"
}

/// The result of a step of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// The cursor: the first id that is not searched yet.
    pub indexed_before: Uuid,
    /// Rows that were looked at.
    pub looked: i64,
    /// Deliveries that got a due time.
    pub indexed: i64,
    /// The earliest one of these times.
    pub earliest: Option<OffsetDateTime>,
}

rows! { Indexed { indexed_before, looked, indexed, earliest } }

impl Leader {
    /// Moves the cursor by one step: gives the untried deliveries among the next 1,000 from `cursor` on, where it is, to
    /// `end` their creation as their due time. Returns `None` during a rebuild.
    ///
    /// # Errors
    /// When the database does not answer, or somebody has locked a row. Then nothing has happened.
    pub async fn untried_index(&mut self, cursor: Uuid, end: Uuid) -> Result<Option<Indexed>, LedgerError> {
        let step = sql(format!(include_str!("index_untried.sql"), rows = ROWS));
        let step = step.bind(cursor).bind(end);
        self.run("untried_index", async |conn| step.get_result(conn).await.optional()).await
    }

    /// The deliveries that a step from `cursor` to `end` looks at.
    pub async fn untried_next(&mut self, cursor: Uuid, end: Uuid) -> Result<Vec<Uuid>, LedgerError> {
        let next = deliveries::table
            .filter(deliveries::id.ge(cursor))
            .filter(deliveries::id.lt(end))
            .order(deliveries::id)
            .limit(ROWS.into())
            .select(deliveries::id);
        self.run("untried_next", async |conn| next.load(conn).await).await
    }

    /// Moves the cursor past a delivery, if it is there. Returns the cursor then. The delivery gets no due time.
    pub async fn untried_pass(&mut self, delivery: Uuid) -> Result<Uuid, LedgerError> {
        let next = Uuid::from_u128(delivery.as_u128().saturating_add(1));
        let pass = sql(PASS).bind(delivery).bind(next);
        self.run("untried_pass", async |conn| pass.execute(conn).await.map(|_| next)).await
    }
}

impl Ledger {
    /// Returns one of the deliveries that cannot get a due time for its row's own data, if there is one. Changes nothing.
    pub async fn untried_faulty(&self, deliveries: &[Uuid]) -> Option<Uuid> {
        let mut part = deliveries;
        if !self.fails_to_index(part).await {
            return None;
        }
        while part.len() > 1 {
            let (one, other) = part.split_at(part.len() / 2);
            part = if self.fails_to_index(one).await { one } else { other };
        }
        // A part may have failed by something that is over.
        let delivery = *part.first()?;
        self.fails_to_index(part).await.then_some(delivery)
    }

    async fn fails_to_index(&self, part: &[Uuid]) -> bool {
        self.fails_by_row(&IndexDeliveries { delivery: part.to_vec() }).await
    }
}
