//! What waits to be done: counts that stop at a limit, and estimates, however much there is.

use domain::OutcomeClass;
use time::OffsetDateTime;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    statement::{rows, sql},
};

/// Waiting jobs, notices and tasks beside the queues. Each count stops at [`WorkSeen::MAX_COUNT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkSeen {
    /// Deliveries that wait for their jobs on the queue of dead jobs.
    pub parked: i64,
    /// Jobs in the outbox.
    pub outbox: i64,
    /// Of these, those whose lease ended over a minute ago: no relay takes them.
    pub outbox_late: i64,
    /// Notices that are not published.
    pub notices: i64,
    /// Of these, those whose lease ended over a minute ago.
    pub notices_late: i64,
    /// Tasks and recoveries under way.
    pub tasks: i64,
    /// Of these, those whose next step has been due for five minutes.
    pub tasks_late: i64,
    /// Jobs of paused webhooks.
    pub held: i64,
    /// Active webhooks with held jobs.
    pub slow_webhooks: i64,
}

rows! { WorkSeen { parked, outbox, outbox_late, notices, notices_late, tasks, tasks_late, held, slow_webhooks } }

impl WorkSeen {
    /// The most that is counted of a kind.
    pub const MAX_COUNT: i64 = 10_000;
}

/// Deliveries that wait for a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetriesSeen {
    /// The number of these among the oldest [`RetriesSeen::MAX_DELIVERIES`] unsuccessful deliveries.
    pub counted: i64,
    /// How many unsuccessful deliveries were looked at.
    pub looked_at: i64,
    /// How many of all, by the server's statistics.
    pub estimated: Option<f64>,
}

rows! { RetriesSeen { counted, looked_at, estimated } }

impl RetriesSeen {
    /// The most unsuccessful deliveries that are looked at.
    pub const MAX_DELIVERIES: i64 = 20_000;

    /// How many wait, and whether that is exact.
    #[expect(clippy::cast_possible_truncation, reason = "an estimate")]
    pub fn count(&self) -> (i64, bool) {
        match self.estimated {
            _ if self.looked_at < Self::MAX_DELIVERIES => (self.counted, true),
            Some(estimated) => ((estimated.round() as i64).max(self.counted), false),
            None => (self.counted, false),
        }
    }
}

/// Deliveries whose attempt is overdue, and whose jobs are neither held, parked nor in the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueSeen {
    /// The number of these, of the [`RetriesSeen::MAX_DELIVERIES`] deliveries that are due first and as many of the latest
    /// deliveries.
    pub overdue: i64,
    /// When the first of these was due.
    pub oldest_due: Option<OffsetDateTime>,
}

rows! { OverdueSeen { overdue, oldest_due } }

/// Attempts that ended in an hour with an outcome class. Attempts of test deliveries are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptsSeen {
    /// The hour's begin.
    pub hour: OffsetDateTime,
    /// The outcome class.
    pub outcome: OutcomeClass,
    /// The number of attempts.
    pub attempts: i64,
}

rows! { AttemptsSeen { hour, outcome, attempts } }

impl AttemptsSeen {
    /// The maximum of rows of statistics that are read, the latest ones.
    pub const MAX_ROWS: i64 = 100_000;
}

impl Ledger {
    /// Counts the attempts of this hour and the 25 hours before it, by hour and outcome class.
    pub async fn attempts_seen(&self) -> Result<Vec<AttemptsSeen>, LedgerError> {
        let query = "SELECT hour, outcome, sum(attempts)::bigint AS attempts FROM ( \
                       SELECT hour, outcome, attempts FROM webhook_stats \
                       WHERE hour > now() - interval '26 hours' ORDER BY hour DESC LIMIT $1 \
                     ) AS latest GROUP BY hour, outcome ORDER BY hour DESC, attempts DESC";
        let query = sql(query).bind(AttemptsSeen::MAX_ROWS);
        self.run("attempts_seen", async |conn| query.load_known(conn).await).await
    }

    /// Counts what waits beside the queues.
    pub async fn work_seen(&self) -> Result<WorkSeen, LedgerError> {
        let query = sql(include_str!("work.sql")).bind(WorkSeen::MAX_COUNT);
        self.run("work_seen", async |conn| query.get_result(conn).await).await
    }

    /// Counts the deliveries that wait for a retry.
    pub async fn retries_seen(&self) -> Result<RetriesSeen, LedgerError> {
        let query = sql(include_str!("retries.sql")).bind(RetriesSeen::MAX_DELIVERIES);
        self.run("retries_seen", async |conn| query.get_result(conn).await).await
    }

    /// Looks for overdue deliveries: the ones with a due time by an index, the others where they are likely.
    pub async fn overdue_seen(&self) -> Result<OverdueSeen, LedgerError> {
        let query = sql(include_str!("overdue.sql")).bind(RetriesSeen::MAX_DELIVERIES);
        self.run("overdue_seen", async |conn| query.get_result(conn).await).await
    }
}
