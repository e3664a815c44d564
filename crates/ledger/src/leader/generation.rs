//! The broker's generation: the sentinel queue that is lost only with the broker's disk, and a rebuild's progress.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    leader::{
        Leader,
        find_waiting::{Place, Stream},
    },
    statement::{rows, sql},
};

/// What the ledger knows of the broker's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The sentinel queue, which exists until the broker loses its disk. `None` until one is adopted.
    pub id: Option<Uuid>,
    /// The sentinel queue of the rebuild under way.
    pub rebuild_id: Option<Uuid>,
    /// When that queue was declared: no job published since then is lost. `None` until then.
    pub rebuild_began_at: Option<OffsetDateTime>,
    /// The cursor of untried deliveries: each waiting one before it has a due time.
    pub indexed_before: Uuid,
    /// The place that the rebuild has reached.
    pub rebuild: RebuildCursor,
}

/// The cursors of a rebuild: the broker has confirmed the jobs up to these deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildCursor {
    /// The due time of the last delivery of those with one. `None` when there is no further one.
    pub rebuild_due: Option<OffsetDateTime>,
    /// That delivery.
    pub rebuild_due_id: Uuid,
    /// The last delivery of those that were never attempted, the newest first. Zero when there is no further one.
    pub rebuild_untried: Uuid,
}

rows! {
    Generation { id, rebuild_id, rebuild_began_at, indexed_before; rebuild }
    RebuildCursor { rebuild_due, rebuild_due_id, rebuild_untried }
}

impl RebuildCursor {
    /// The most overdue delivery, and the newest one of those without a due time.
    pub const FIRST: Self = Self {
        rebuild_due: Some(OffsetDateTime::UNIX_EPOCH),
        rebuild_due_id: Uuid::nil(),
        rebuild_untried: Uuid::max(),
    };

    /// The next chunk of deliveries with a due time. `None` at the end.
    pub fn due(&self) -> Option<(Stream, Place)> {
        Some((Stream::Due, Place { due: self.rebuild_due?, id: self.rebuild_due_id }))
    }

    /// The next chunk of deliveries without a due time. `None` at the end.
    pub fn untried(&self) -> Option<(Stream, Place)> {
        let place = Place { due: OffsetDateTime::UNIX_EPOCH, id: self.rebuild_untried };
        Some((Stream::UntriedBackwards, place)).filter(|_| !self.rebuild_untried.is_nil())
    }

    /// Moves a cursor past a chunk of its stream that ended at `last`. Untried deliveries end at `indexed_before`.
    pub fn advance(&mut self, stream: Stream, last: Option<Place>, indexed_before: Uuid) {
        match stream {
            Stream::Due => {
                self.rebuild_due = last.map(|last| last.due);
                self.rebuild_due_id = last.map(|last| last.id).unwrap_or_default();
            }
            Stream::Untried | Stream::UntriedBackwards => {
                let last = last.map(|last| last.id).filter(|last| *last > indexed_before);
                self.rebuild_untried = last.unwrap_or_default();
            }
        }
    }
}

const READ: &str = "SELECT id, indexed_before, rebuild_id, rebuild_began_at, rebuild_due, rebuild_due_id, rebuild_untried \
     FROM broker_generation";
const PLAN: &str = "UPDATE broker_generation SET rebuild_id = $1, rebuild_began_at = NULL";
const REACH: &str = "UPDATE broker_generation SET rebuild_began_at = $1, rebuild_due = $2, rebuild_due_id = $3, \
     rebuild_untried = $4";
const FINISH: &str = "UPDATE broker_generation SET id = rebuild_id, rebuild_id = NULL, rebuild_began_at = NULL \
     WHERE rebuild_id IS NOT NULL";

impl Leader {
    /// Reads the generation.
    pub async fn generation(&mut self) -> Result<Generation, LedgerError> {
        self.run("generation", async |conn| sql(READ).get_result(conn).await).await
    }

    /// Names the queue that a rebuild is about to declare. If it dies, the next one uses the same name.
    pub async fn rebuild_plan(&mut self, id: Uuid) -> Result<(), LedgerError> {
        let plan = sql(PLAN).bind(id);
        self.run("rebuild_plan", async |conn| plan.execute(conn).await.map(|_| ())).await
    }

    /// Notes how far a rebuild has come that began at `since`, once its queue was declared.
    pub async fn rebuild_reach(&mut self, since: OffsetDateTime, reached: &RebuildCursor) -> Result<(), LedgerError> {
        let reach =
            sql(REACH).bind(since).bind(reached.rebuild_due).bind(reached.rebuild_due_id).bind(reached.rebuild_untried);
        self.run("rebuild_reach", async |conn| reach.execute(conn).await.map(|_| ())).await
    }

    /// Ends the rebuild: every waiting delivery has its job, and the rebuild's queue is the sentinel.
    pub async fn rebuild_finish(&mut self) -> Result<(), LedgerError> {
        self.run("rebuild_finish", async |conn| sql(FINISH).execute(conn).await.map(|_| ())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_goes_by_due_time_from_the_most_overdue_and_back_through_the_untried_ones_to_the_cursor() {
        let at = |second: i64, id: u128| Place {
            due: OffsetDateTime::from_unix_timestamp(second).unwrap(),
            id: Uuid::from_u128(id),
        };
        let indexed_before = Uuid::from_u128(100);
        let mut cursor = RebuildCursor::FIRST;
        assert_eq!(cursor.due(), Some((Stream::Due, at(0, 0))));
        cursor.advance(Stream::Due, Some(at(30, 7)), indexed_before);
        assert_eq!(cursor.due(), Some((Stream::Due, at(30, 7))));
        assert_eq!(cursor.untried(), Some((Stream::UntriedBackwards, Place { id: Uuid::max(), ..at(0, 0) })));
        cursor.advance(Stream::UntriedBackwards, Some(at(30, 101)), indexed_before);
        assert_eq!(cursor.untried(), Some((Stream::UntriedBackwards, at(0, 101))));
        cursor.advance(Stream::Due, None, indexed_before);
        assert!(cursor.due().is_none() && cursor.untried().is_some(), "each stream has its own end");
        cursor.advance(Stream::UntriedBackwards, Some(at(30, 100)), indexed_before);
        assert_eq!((cursor.due(), cursor.untried()), (None, None), "nothing waits before the cursor");
    }
}
