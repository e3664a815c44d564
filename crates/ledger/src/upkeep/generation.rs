//! The broker's generation: the sentinel queue that is lost only with the broker's disk, and a rebuild's progress.

use diesel::{
    QueryableByName,
    sql_types::{Bool, Nullable, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    upkeep::{
        find_waiting::{Place, Stream},
        leader::Leader,
    },
};

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
    /// The place that it has reached.
    #[diesel(embed)]
    pub rebuild: RebuildCursor,
}

/// The cursors of a rebuild: the broker has confirmed the jobs up to these deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, QueryableByName)]
pub struct RebuildCursor {
    /// The due time of the last delivery of those with one. `None` when there is no further one.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub rebuild_due: Option<OffsetDateTime>,
    /// That delivery.
    #[diesel(sql_type = SqlUuid)]
    pub rebuild_due_id: Uuid,
    /// Set when the latest due time was reached, and the more overdue ones follow, the most overdue last.
    #[diesel(sql_type = Bool)]
    pub rebuild_is_backwards: bool,
    /// The last delivery of those that were never attempted, the newest first. Zero when there is no further one.
    #[diesel(sql_type = SqlUuid)]
    pub rebuild_untried: Uuid,
}

/// Deliveries that are overdue by less come first.
const RECENT: time::Duration = time::Duration::HOUR;

impl RebuildCursor {
    /// The first delivery that fell due within the last hour, and the newest one of those without a due time.
    #[must_use]
    pub fn first(since: OffsetDateTime) -> Self {
        Self {
            rebuild_due: Some(since - RECENT),
            rebuild_due_id: Uuid::nil(),
            rebuild_is_backwards: false,
            rebuild_untried: Uuid::max(),
        }
    }

    /// The next chunk of deliveries with a due time. `None` at the end.
    #[must_use]
    pub fn due(&self) -> Option<(Stream, Place)> {
        let stream = if self.rebuild_is_backwards { Stream::DueBackwards } else { Stream::Due };
        Some((stream, Place { due: self.rebuild_due?, id: self.rebuild_due_id }))
    }

    /// The next chunk of deliveries without a due time. `None` at the end.
    #[must_use]
    pub fn untried(&self) -> Option<(Stream, Place)> {
        let place = Place { due: OffsetDateTime::UNIX_EPOCH, id: self.rebuild_untried };
        Some((Stream::UntriedBackwards, place)).filter(|_| !self.rebuild_untried.is_nil())
    }

    /// Moves a cursor past a chunk of its stream that ended at `last`. Past the last chunk of the deliveries that are
    /// due latest, those follow that are overdue by more than an hour, from `since` on.
    pub fn advance(&mut self, stream: Stream, last: Option<Place>, since: OffsetDateTime) {
        match (stream, last) {
            (Stream::Untried | Stream::UntriedBackwards, last) => {
                self.rebuild_untried = last.map(|last| last.id).unwrap_or_default();
            }
            (_, Some(last)) => (self.rebuild_due, self.rebuild_due_id) = (Some(last.due), last.id),
            (Stream::Due, None) => {
                let first = Self::first(since);
                (self.rebuild_due, self.rebuild_due_id) = (first.rebuild_due, first.rebuild_due_id);
                self.rebuild_is_backwards = true;
            }
            (Stream::DueBackwards, None) => self.rebuild_due = None,
        }
    }
}

const READ: &str = "SELECT id, rebuilding, rebuild_began_at, rebuild_due, rebuild_due_id, rebuild_is_backwards, \
     rebuild_untried FROM broker_generation";
const PLAN: &str = "UPDATE broker_generation SET rebuilding = $1, rebuild_began_at = NULL";
const REACH: &str = "UPDATE broker_generation SET rebuild_began_at = $1, rebuild_due = $2, rebuild_due_id = $3, \
     rebuild_is_backwards = $4, rebuild_untried = $5";
const FINISH: &str = "UPDATE broker_generation SET id = rebuilding, rebuilding = NULL, rebuild_began_at = NULL \
     WHERE rebuilding IS NOT NULL";

impl Leader {
    /// Reads the generation.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn generation(&mut self) -> Result<Generation, LedgerError> {
        self.run("generation", async |conn| diesel::sql_query(READ).get_result(conn).await).await
    }

    /// Names the queue that a rebuild is about to declare. If it dies, the next one uses the same name.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_plan(&mut self, id: Uuid) -> Result<(), LedgerError> {
        let plan = diesel::sql_query(PLAN).bind::<SqlUuid, _>(id);
        self.run("rebuild_plan", async |conn| plan.execute(conn).await.map(|_| ())).await
    }

    /// Notes how far a rebuild has come that began at `since`, once its queue was declared.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_reach(&mut self, since: OffsetDateTime, reached: &RebuildCursor) -> Result<(), LedgerError> {
        let reach = diesel::sql_query(REACH)
            .bind::<Timestamptz, _>(since)
            .bind::<Nullable<Timestamptz>, _>(reached.rebuild_due)
            .bind::<SqlUuid, _>(reached.rebuild_due_id)
            .bind::<Bool, _>(reached.rebuild_is_backwards)
            .bind::<SqlUuid, _>(reached.rebuild_untried);
        self.run("rebuild_reach", async |conn| reach.execute(conn).await.map(|_| ())).await
    }

    /// Ends the rebuild: every waiting delivery has its job, and the rebuild's queue is the sentinel.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn rebuild_finish(&mut self) -> Result<(), LedgerError> {
        self.run("rebuild_finish", async |conn| diesel::sql_query(FINISH).execute(conn).await.map(|_| ())).await
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn the_latest_hour_and_the_future_come_first_then_the_more_overdue_ones_and_the_untried_ones_beside_them() {
        let since = datetime!(2026-03-01 09:30 UTC);
        let at = |due: OffsetDateTime, id: u128| Place { due, id: Uuid::from_u128(id) };
        let recent = at(since - RECENT, 0);
        let mut cursor = RebuildCursor::first(since);
        assert_eq!(cursor.due(), Some((Stream::Due, recent)));
        let future = at(since + RECENT, 7);
        cursor.advance(Stream::Due, Some(future), since);
        assert_eq!(cursor.due(), Some((Stream::Due, future)));
        cursor.advance(Stream::Due, None, since);
        assert_eq!(cursor.due(), Some((Stream::DueBackwards, recent)));
        let oldest = at(since - RECENT * 9, 8);
        cursor.advance(Stream::DueBackwards, Some(oldest), since);
        assert_eq!(cursor.due(), Some((Stream::DueBackwards, oldest)));
        assert_eq!(
            cursor.untried().map(|(stream, place)| (stream, place.id)),
            Some((Stream::UntriedBackwards, Uuid::max()))
        );
        cursor.advance(Stream::UntriedBackwards, Some(at(since, 5)), since);
        assert_eq!(cursor.untried().map(|(_, place)| place.id), Some(Uuid::from_u128(5)));
        cursor.advance(Stream::DueBackwards, None, since);
        assert!(cursor.due().is_none() && cursor.untried().is_some(), "each stream has its own end");
        cursor.advance(Stream::UntriedBackwards, None, since);
        assert_eq!((cursor.due(), cursor.untried()), (None, None));
    }
}
