//! The partitions by day: made ahead of time, also when rows of the day are in the default partition already.

use std::collections::BTreeSet;

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Text},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::DeliveryId;
use time::{Date, OffsetDateTime, macros::format_description};
use uuid::Uuid;

use crate::{error::LedgerError, leader::Leader, schema::SCHEMA_LOCK};

/// Partitions exist from this many days back, for events that come late, to this many days ahead.
const DAYS_BACK: i64 = 2;
const DAYS_AHEAD: i64 = 7;
/// Rows that are moved from the default partition, while everybody waits: a fraction of a second.
const MOVED: i64 = 5_000;

/// A day, of which each of the three tables may have a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(Date);

#[derive(QueryableByName)]
pub(crate) struct Name {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

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
    /// What its partitions' names end in.
    pub(crate) fn suffix(self) -> String {
        self.0.format(format_description!("[year][month][day]")).unwrap_or_default()
    }

    fn of_partition(name: &str) -> Option<Self> {
        let (_, suffix) = name.rsplit_once('_')?;
        Date::parse(suffix, format_description!("[year][month][day]")).ok().map(Self)
    }

    /// Its first moment.
    pub(crate) const fn start(self) -> OffsetDateTime {
        self.0.midnight().assume_utc()
    }

    /// The first moment after it.
    pub(crate) fn end(self) -> OffsetDateTime {
        self.start() + time::Duration::DAY
    }

    /// The ids of its deliveries: from the first to before the second.
    pub(crate) fn ids(self) -> (Uuid, Uuid) {
        let bound = |moment: OffsetDateTime| {
            DeliveryId::bound_at_millis(u64::try_from(moment.unix_timestamp()).unwrap_or_default() * 1000)
        };
        (bound(self.start()), bound(self.end()))
    }

    /// Each table with its key and the bounds of this day.
    fn tables(self) -> [(&'static str, &'static str, String, String); 3] {
        let (first, beyond) = self.ids();
        let moment = |moment: OffsetDateTime| format!("to_timestamp({})", moment.unix_timestamp());
        let id = |id: Uuid| format!("'{id}'::uuid");
        [
            ("events", "occurred_at", moment(self.start()), moment(self.end())),
            ("deliveries", "id", id(first), id(beyond)),
            ("attempts", "delivery_id", id(first), id(beyond)),
        ]
    }
}

impl Leader {
    /// Makes the partitions around `today` that are missing. Returns how many could not be made.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn partitions_ensure(&mut self, today: Date) -> Result<usize, LedgerError> {
        self.run(async |conn| make_partitions(conn, today).await).await
    }

    /// Every day that has a partition, oldest first.
    pub(crate) async fn days(&mut self) -> Result<BTreeSet<Day>, LedgerError> {
        let list = "SELECT c.relname::text AS name FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid \
                    WHERE i.inhparent IN ('events'::regclass, 'deliveries'::regclass, 'attempts'::regclass)";
        let names: Vec<Name> = self.run(async |conn| diesel::sql_query(list).load(conn).await).await?;
        Ok(names.iter().filter_map(|row| Day::of_partition(&row.name)).collect())
    }
}

pub(crate) async fn make_partitions(conn: &mut AsyncPgConnection, today: Date) -> diesel::QueryResult<usize> {
    let mut failed = 0;
    for offset in -DAYS_BACK..=DAYS_AHEAD {
        let Some(day) = today.checked_add(time::Duration::days(offset)) else { continue };
        for table in Day(day).tables() {
            if let Err(error) = make_partition(conn, Day(day), &table).await {
                // Its rows go to the default partition: nothing is lost.
                tracing::warn!(%day, table = table.0, %error, "a partition could not be made; trying again later");
                failed += 1;
            }
        }
    }
    Ok(failed)
}

/// Rows that are only added, and found by their keys, need neither vacuum nor statistics before their day goes.
macro_rules! only_added {
    () => {
        "autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647"
    };
}

async fn make_partition(
    conn: &mut AsyncPgConnection,
    day: Day,
    (table, key, from, to): &(&str, &str, String, String),
) -> diesel::QueryResult<()> {
    let name = format!("{table}_{}", day.suffix());
    if !named(conn, &name).await?.is_empty() {
        return Ok(());
    }
    let storage = match *table {
        // Room for the same page to hold every row again: a batch often updates all rows of a page in one transaction.
        "deliveries" => "WITH (fillfactor = 50)",
        // A body that fits into a page once it is compressed lies in its row: elsewhere it would be cut into pieces, each
        // with an entry in an index.
        "events" => concat!("WITH (toast_tuple_target = 8160, ", only_added!(), ")"),
        _ => concat!("WITH (", only_added!(), ")"),
    };
    let create =
        format!("CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to}) {storage}");
    let these = format!("FROM {table}_default WHERE {key} >= {from} AND {key} < {to}");
    conn.transaction(async |conn| {
        let lock = format!("SET LOCAL lock_timeout = '500ms'; SELECT pg_advisory_xact_lock({SCHEMA_LOCK})");
        conn.batch_execute(&lock).await?;
        let count = format!("SELECT count(*) FROM (SELECT {these} LIMIT {}) AS few", MOVED + 1);
        let Count { count } = diesel::sql_query(count).get_result(conn).await?;
        match count {
            0 => conn.batch_execute(&create).await,
            1..=MOVED => {
                tracing::info!(name, rows = count, "rows move from the default partition to their own");
                conn.batch_execute(&format!(
                    "LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE; \
                     LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE; \
                     CREATE TEMPORARY TABLE moved (LIKE {table}) ON COMMIT DROP; \
                     INSERT INTO moved SELECT * {these}; DELETE {these}; {create}; \
                     INSERT INTO {table} SELECT * FROM moved"
                ))
                .await
            }
            // They stay where they are, and are found there. The day is not worth a long lock.
            _ => {
                tracing::warn!(name, "too many rows of this day are in the default partition: it gets none of its own");
                Ok(())
            }
        }
    })
    .await
}

/// The table's name, if it exists.
pub(crate) async fn named(conn: &mut AsyncPgConnection, name: &str) -> diesel::QueryResult<Vec<Name>> {
    let find = diesel::sql_query("SELECT relname::text AS name FROM pg_class WHERE oid = to_regclass($1)");
    find.bind::<Text, _>(name.to_owned()).load(conn).await
}
