//! Partitions by day. They are made ahead of time, and by whoever stores a row of a day that has none.

use std::collections::BTreeSet;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use domain::DeliveryId;
use time::{Date, OffsetDateTime, macros::format_description};
use uuid::Uuid;

use crate::{connect::pool::Ledger, error::LedgerError, statement::sql};

/// Partitions are made from `DAYS_BACK` days ago, as events may come late, to `DAYS_AHEAD` days ahead.
const DAYS_BACK: i64 = 2;
const DAYS_AHEAD: i64 = 7;
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// The advisory lock: one process at a time makes a partition.
const PARTITIONS_LOCK: i64 = 0x7765_6268_7061_7274;

/// A day. Each of the three partitioned tables may have a partition for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(Date);

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Date> for Day {
    fn from(date: Date) -> Self {
        Self(date)
    }
}

impl Day {
    /// The end of its partitions' names, as `20260301`.
    pub(crate) fn suffix(self) -> String {
        self.0.format(format_description!("[year][month][day]")).unwrap_or_default()
    }

    pub(crate) fn of_partition(name: &str) -> Option<Self> {
        let (_, suffix) = name.rsplit_once('_')?;
        Date::parse(suffix, format_description!("[year][month][day]")).ok().map(Self)
    }

    pub(crate) const fn date(self) -> Date {
        self.0
    }

    /// Its first second, in Unix seconds.
    const fn start(self) -> i64 {
        self.0.midnight().assume_utc().unix_timestamp()
    }

    /// The first second after it, in Unix seconds. Computed, as the day after 9999-12-31 has no `Date`.
    const fn end(self) -> i64 {
        self.start() + DAY_SECONDS
    }

    /// Whether it was over at `moment`.
    pub(crate) fn is_over(self, moment: OffsetDateTime) -> bool {
        self.end() <= moment.unix_timestamp()
    }

    /// The range of its deliveries' ids: start, and end (exclusive).
    pub(crate) fn ids(self) -> (Uuid, Uuid) {
        let bound = |second: i64| DeliveryId::bound_at_millis(u64::try_from(second).unwrap_or_default() * 1000);
        (bound(self.start()), bound(self.end()))
    }

    /// Its partitions, in the order in which the pipeline locks their tables.
    pub(crate) fn partitions(self) -> [Partition; 3] {
        let (first, beyond) = self.ids();
        let ids = (format!("'{first}'::uuid"), format!("'{beyond}'::uuid"));
        let times = (format!("to_timestamp({})", self.start()), format!("to_timestamp({})", self.end()));
        let partition =
            |table, key, bounds| Partition { table, key, bounds, name: format!("{table}_{}", self.suffix()) };
        [
            partition("deliveries", "id", ids.clone()),
            partition("events", "occurred_at", times),
            partition("attempts", "delivery_id", ids),
        ]
    }
}

/// A week: the days of one plan. PostgreSQL locks every partition of a plan at each execution, even those that the
/// parameters exclude, and plans anew when one of them is vacuumed, analyzed or dropped. A statement whose text names
/// its week costs the same however many days are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Week(i64);

impl Week {
    const SECONDS: i64 = 7 * DAY_SECONDS;

    /// The week of a delivery's event.
    pub(crate) fn of(delivery: DeliveryId) -> Self {
        Self(delivery.occurred_at().unix_timestamp().div_euclid(Self::SECONDS))
    }

    /// A CTE of one row: the bounds of its deliveries' ids and of its events' times, each with the end excluded.
    pub(crate) fn bounds(self, name: &str) -> String {
        let (start, end) = (self.0 * Self::SECONDS, (self.0 + 1) * Self::SECONDS);
        let id = |second: i64| DeliveryId::bound_at_millis(u64::try_from(second).unwrap_or_default() * 1000);
        format!(
            "{name}(first_id, end_id, first_at, end_at) AS NOT MATERIALIZED ( \
               SELECT '{}'::uuid, '{}'::uuid, to_timestamp({start}), to_timestamp({end}))\n",
            id(start),
            id(end)
        )
    }
}

/// A partition of a day.
pub(crate) struct Partition {
    pub(crate) name: String,
    table: &'static str,
    key: &'static str,
    bounds: (String, String),
}

/// Rows that are only inserted, and found by key, need neither vacuum nor statistics until their day is dropped or
/// frozen: a vacuum before would write every page once more (deploy/production.md, Old transaction ids).
macro_rules! only_added {
    () => {
        "autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647"
    };
}

impl Partition {
    /// Creates a table of this form, which locks out nobody, and attaches it. Its constraint saves that from reading it.
    fn make(&self) -> String {
        let Self { name, table, key, bounds: (from, to) } = self;
        let storage = match *table {
            // Each page has room for all its rows once more: a batch often updates all of them in one transaction.
            "deliveries" => "fillfactor = 50",
            // A body that fits into a page once compressed stays in its row. Stored apart (TOAST), it would be cut into
            // pieces, each with an index entry.
            "events" => concat!("toast_tuple_target = 8160, ", only_added!()),
            _ => only_added!(),
        };
        format!(
            "CREATE TABLE {name} ( \
               LIKE {table} INCLUDING ALL, CONSTRAINT of_day CHECK ({key} >= {from} AND {key} < {to}) \
             ) WITH ({storage}); \
             ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to}); \
             ALTER TABLE {name} DROP CONSTRAINT of_day"
        )
    }
}

impl Ledger {
    /// Makes the missing partitions for the days of `times` if `error` may come from a missing one, as after a week
    /// without a leader. Returns whether the failed statement can be run once more, whoever has made them.
    pub(crate) async fn days_made(&self, error: &LedgerError, times: &[OffsetDateTime]) -> Result<bool, LedgerError> {
        use diesel::result::{DatabaseErrorKind::CheckViolation, Error::DatabaseError};
        if !matches!(error, LedgerError::Query(DatabaseError(CheckViolation, _))) {
            return Ok(false);
        }
        let days: BTreeSet<_> = times.iter().map(|time| Day(time.date())).collect();
        let made = self.run("days_made", async |conn| make_partitions(conn, days.iter().copied()).await).await?;
        if made > 0 {
            tracing::info!(made, "partitions of days were missing: they are made now");
        }
        Ok(true)
    }
}

/// Lists the names of all partitions.
pub(crate) const LIST_PARTITIONS: &str = "SELECT c.relname::text AS name FROM pg_inherits AS i \
     JOIN pg_class AS c ON c.oid = i.inhrelid \
     WHERE i.inhparent IN ('events'::regclass, 'deliveries'::regclass, 'attempts'::regclass)";

/// The days for which partitions are made ahead of time.
pub(crate) fn around(today: Date) -> impl Iterator<Item = Day> {
    (-DAYS_BACK..=DAYS_AHEAD).filter_map(move |offset| today.checked_add(time::Duration::days(offset))).map(Day)
}

/// Makes the missing partitions of the days, those of a day in one transaction. Locks out neither readers nor writers: a
/// partition is created on its own, then attached. Returns how many were missing.
pub(crate) async fn make_partitions(
    conn: &mut AsyncPgConnection,
    days: impl IntoIterator<Item = Day>,
) -> diesel::QueryResult<usize> {
    let mut missing = 0;
    for day in days {
        if !day.missing(conn).await?.is_empty() {
            missing += conn.transaction(async |conn| day.make(conn).await).await?;
        }
    }
    Ok(missing)
}

impl Day {
    /// Makes its missing partitions, one process at a time. Returns how many there were.
    async fn make(self, conn: &mut AsyncPgConnection) -> diesel::QueryResult<usize> {
        conn.batch_execute(&format!("SELECT pg_advisory_xact_lock({PARTITIONS_LOCK})")).await?;
        let missing = self.missing(conn).await?;
        for partition in &missing {
            conn.batch_execute(&partition.make()).await?;
        }
        Ok(missing.len())
    }

    async fn missing(self, conn: &mut AsyncPgConnection) -> diesel::QueryResult<Vec<Partition>> {
        // Not by `to_regclass`: within a transaction that looks in a cache, which may not know yet what another has made.
        let find = sql("SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS ( \
               SELECT FROM pg_class WHERE relname = name AND relnamespace = current_schema()::regnamespace)");
        let names: Vec<_> = self.partitions().into_iter().map(|partition| partition.name).collect();
        let missing: Vec<String> = find.bind(names).values(conn).await?;
        let is_missing = |partition: &Partition| missing.contains(&partition.name);
        Ok(self.partitions().into_iter().filter(is_missing).collect())
    }
}
