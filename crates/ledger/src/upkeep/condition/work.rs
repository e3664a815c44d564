//! What waits to be done: counts that stop at a limit, and estimates, however much there is.

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Double, Nullable, Text, Timestamptz},
};
use diesel_async::RunQueryDsl;
use domain::OutcomeClass;
use time::OffsetDateTime;

use crate::{error::LedgerError, names::StoredOutcome, pool::Ledger};

/// What waits beside the queues. Each count stops at [`WorkSeen::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, QueryableByName)]
pub struct WorkSeen {
    /// Deliveries that wait for their jobs on the queue of dead jobs.
    #[diesel(sql_type = BigInt)]
    pub parked: i64,
    /// Jobs in the outbox.
    #[diesel(sql_type = BigInt)]
    pub outbox: i64,
    /// Of these, those whose lease ended over a minute ago: no relay takes them.
    #[diesel(sql_type = BigInt)]
    pub outbox_late: i64,
    /// Notices that are not published.
    #[diesel(sql_type = BigInt)]
    pub notices: i64,
    /// Of these, those whose lease ended over a minute ago.
    #[diesel(sql_type = BigInt)]
    pub notices_late: i64,
    /// Tasks and recoveries under way.
    #[diesel(sql_type = BigInt)]
    pub tasks: i64,
    /// Of these, those whose next step has been due for five minutes.
    #[diesel(sql_type = BigInt)]
    pub tasks_late: i64,
    /// Jobs of paused webhooks.
    #[diesel(sql_type = BigInt)]
    pub held: i64,
    /// Active webhooks with held jobs.
    #[diesel(sql_type = BigInt)]
    pub slow_webhooks: i64,
}

impl WorkSeen {
    /// The most that is counted of a kind.
    pub const MOST: i64 = 10_000;
}

/// Deliveries that wait for a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, QueryableByName)]
pub struct RetriesSeen {
    /// How many of the oldest [`RetriesSeen::MOST`] unsuccessful deliveries.
    #[diesel(sql_type = BigInt)]
    pub counted: i64,
    /// How many unsuccessful deliveries were looked at.
    #[diesel(sql_type = BigInt)]
    pub looked_at: i64,
    /// How many of all, by the server's statistics.
    #[diesel(sql_type = Nullable<Double>)]
    pub estimated: Option<f64>,
}

impl RetriesSeen {
    /// The most unsuccessful deliveries that are looked at.
    pub const MOST: i64 = 20_000;

    /// How many wait, and whether that is exact.
    #[expect(clippy::cast_possible_truncation, reason = "an estimate")]
    pub fn count(&self) -> (i64, bool) {
        match self.estimated {
            _ if self.looked_at < Self::MOST => (self.counted, true),
            Some(estimated) => ((estimated.round() as i64).max(self.counted), false),
            None => (self.counted, false),
        }
    }
}

/// Deliveries whose attempt is overdue, and whose jobs are neither held, parked nor in the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, QueryableByName)]
pub struct OverdueSeen {
    /// The number of these, of the [`RetriesSeen::MOST`] deliveries that are due first and as many of the latest
    /// deliveries.
    #[diesel(sql_type = BigInt)]
    pub overdue: i64,
    /// When the first of these was due.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_due: Option<OffsetDateTime>,
}

/// Attempts that ended in an hour with an outcome class. Attempts of test deliveries are left out.
#[derive(Clone, Debug, PartialEq, Eq, QueryableByName)]
pub struct AttemptsSeen {
    /// The hour's begin.
    #[diesel(sql_type = Timestamptz)]
    pub hour: OffsetDateTime,
    /// The outcome class.
    #[diesel(sql_type = Text, deserialize_as = StoredOutcome)]
    pub outcome: OutcomeClass,
    /// The number of attempts.
    #[diesel(sql_type = BigInt)]
    pub attempts: i64,
}

impl AttemptsSeen {
    /// The maximum of rows of statistics that are read, the latest ones.
    pub const MOST: i64 = 100_000;
}

impl Ledger {
    /// Counts the attempts of this hour and the 25 hours before it, by hour and outcome class.
    pub async fn attempts_seen(&self) -> Result<Vec<AttemptsSeen>, LedgerError> {
        let query = "SELECT hour, outcome, sum(attempts)::bigint AS attempts FROM ( \
                       SELECT hour, outcome, attempts FROM webhook_stats \
                       WHERE hour > now() - interval '26 hours' ORDER BY hour DESC LIMIT $1 \
                     ) AS latest GROUP BY hour, outcome ORDER BY hour DESC, attempts DESC";
        let query = diesel::sql_query(query).bind::<BigInt, _>(AttemptsSeen::MOST);
        self.run("attempts_seen", async |conn| query.load(conn).await).await
    }

    /// Counts what waits beside the queues.
    pub async fn work_seen(&self) -> Result<WorkSeen, LedgerError> {
        let query = diesel::sql_query(include_str!("work.sql")).bind::<BigInt, _>(WorkSeen::MOST);
        self.run("work_seen", async |conn| query.get_result(conn).await).await
    }

    /// Counts the deliveries that wait for a retry.
    pub async fn retries_seen(&self) -> Result<RetriesSeen, LedgerError> {
        let query = diesel::sql_query(include_str!("retries.sql")).bind::<BigInt, _>(RetriesSeen::MOST);
        self.run("retries_seen", async |conn| query.get_result(conn).await).await
    }

    /// Looks for overdue deliveries: the ones with a due time by an index, the others where they are likely.
    pub async fn overdue_seen(&self) -> Result<OverdueSeen, LedgerError> {
        let query = diesel::sql_query(include_str!("overdue.sql")).bind::<BigInt, _>(RetriesSeen::MOST);
        self.run("overdue_seen", async |conn| query.get_result(conn).await).await
    }
}
