//! Retention: cancels what still waits in a day that is too old, drops the day, and locks nothing for long.

use std::time::Duration;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::clock::now,
    delivery::waiting::cancel_waiting,
    error::LedgerError,
    leader::Leader,
    partitions::{Day, Partition},
    statement::sql,
};

/// While a drop waits for a reader, everybody else waits behind it, once for each table. So it waits only briefly. The
/// server soon frees what a leader has locked that vanishes.
const TIMEOUTS: &str = "SET LOCAL lock_timeout = '100ms'; SET LOCAL idle_in_transaction_session_timeout = '1s'";

/// Has everybody else wait until a day is dropped. The order is that of the pipeline: while others wait for the first
/// table, they hold none of the others. Where another order has somebody wait for the first table while this waits for
/// him, this fails, and is tried again.
const LOCK_TABLES: &str = "LOCK TABLE ONLY deliveries, ONLY events, ONLY attempts IN ACCESS EXCLUSIVE MODE";

/// The cursor of untried deliveries has passed a day's ids ($1 follows them): the index has all that waits in it.
const IS_INDEXED: &str = "SELECT indexed_before >= $1 AS is_indexed FROM broker_generation";
/// Deletes held jobs of any webhooks. Locks them in the order in which jobs are held and released.
const DELETE_HELD: &str = "WITH held AS MATERIALIZED ( \
       SELECT h.webhook_id, h.delivery_id \
       FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS job(webhook_id, delivery_id, number) \
       CROSS JOIN LATERAL ( \
         SELECT webhook_id, delivery_id FROM held_jobs \
         WHERE webhook_id = job.webhook_id AND delivery_id = job.delivery_id LIMIT 1 FOR UPDATE \
       ) AS h \
     ) DELETE FROM held_jobs AS h USING held WHERE (h.webhook_id, h.delivery_id) = (held.webhook_id, held.delivery_id)";

/// The removal of a day's log or bodies, and its next step. Waiting deliveries of the day are cancelled before.
#[derive(Clone, Debug)]
pub struct Removal {
    day: Day,
    part: DayPart,
    /// The last delivery that was looked at, to be cancelled if it waited. `None`: all were, and the part is dropped next.
    after: Option<Uuid>,
}

/// A part of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayPart {
    /// Deliveries, attempts and events.
    Log,
    /// Events, with their bodies.
    Bodies,
}

/// The result of a step of a removal.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// The next step.
    pub rest: Option<Removal>,
    /// Rows that were looked at.
    pub looked: u32,
    /// Deliveries that were cancelled.
    pub cancelled: u32,
    /// True if the step dropped the part.
    pub is_dropped: bool,
}

impl Removal {
    /// Rows that a step looks at, at most: some tenths of a second if all of them wait.
    pub const MAX_ROWS: u32 = 5_000;

    /// Begins with the cancellation. A drop that failed begins there, too: something may wait by then.
    pub const fn of(day: Day, part: DayPart) -> Self {
        Self { day, part, after: Some(Uuid::nil()) }
    }

    /// The day.
    pub const fn day(&self) -> Day {
        self.day
    }

    /// The part that is removed.
    pub const fn part(&self) -> DayPart {
        self.part
    }
}

impl Leader {
    /// The time by the database's clock.
    pub async fn now(&mut self) -> Result<OffsetDateTime, LedgerError> {
        self.run("now", async |conn| now(conn).await).await
    }

    /// The highest age of a database's oldest transaction id, in transactions. The server refuses writes at 2 billion.
    pub async fn transaction_age(&mut self) -> Result<i32, LedgerError> {
        let highest = sql("SELECT max(age(datfrozenxid)) FROM pg_database");
        self.run("transaction_age", async |conn| highest.value(conn).await).await
    }

    /// The time since the server archived a WAL file, in seconds; if it archived none, since it counts.
    pub async fn archive_age(&mut self) -> Result<Option<f64>, LedgerError> {
        let age = sql(
            "SELECT extract(epoch FROM now() - coalesce(last_archived_time, stats_reset))::float8 FROM pg_stat_archiver",
        );
        self.run("archive_age", async |conn| age.value(conn).await).await
    }

    /// The days that at `now` have been over for this long, oldest first.
    pub async fn days_old(&mut self, now: OffsetDateTime, age: Duration) -> Result<Vec<Day>, LedgerError> {
        Ok(self.days().await?.into_iter().take_while(|day| day.is_over(now - age)).collect())
    }

    /// Returns the days that still have bodies.
    pub async fn days_with_bodies(&mut self, days: Vec<Day>) -> Result<Vec<Day>, LedgerError> {
        let names: Vec<_> = days.into_iter().map(|day| day.events().name).collect();
        let find = sql(
            "SELECT name FROM unnest($1::text[]) AS name WHERE pg_relation_size(to_regclass(name)) > 0 ORDER BY name",
        );
        let find = find.bind(names);
        let names: Vec<String> = self.run("days_with_bodies", async |conn| find.values(conn).await).await?;
        Ok(names.iter().filter_map(|name| Day::of_partition(name)).collect())
    }

    /// Takes the next step of a removal: cancels some deliveries, or drops the part. Does nothing, and there is no next
    /// step, while the cursor of untried deliveries ([`Leader::untried_index`]) has not passed the day.
    ///
    /// # Errors
    /// When the database does not answer, or somebody has locked the day or a row. Nothing has happened then.
    pub async fn removal_step(&mut self, removal: &Removal) -> Result<Removed, LedgerError> {
        let Removal { day, part, after } = *removal;
        let Some(after) = after else {
            let statements = match part {
                DayPart::Log => day.drop_log(),
                DayPart::Bodies => format!("{TIMEOUTS}; TRUNCATE {}", day.events().name),
            };
            self.run_then_commit("removal_step", async |conn| conn.batch_execute(&statements).await).await?;
            return Ok(Removed { is_dropped: true, ..Removed::default() });
        };
        self.run("removal_step", async |conn| {
            conn.transaction(async |conn| {
                let is_indexed = sql(IS_INDEXED).bind(day.ids().1);
                if !is_indexed.value::<bool>(conn).await? {
                    return Ok(Removed::default());
                }
                let (after, looked, cancelled) = day.cancel(conn, after).await?;
                Ok(Removed { rest: Some(Removal { day, part, after }), looked, cancelled, is_dropped: false })
            })
            .await
        })
        .await
    }
}

impl Day {
    /// Cancels those that wait of the next deliveries of the index, and deletes their held jobs. Returns the last of these
    /// deliveries, if more may follow, how many it looked at, and how many it cancelled.
    async fn cancel(self, conn: &mut AsyncPgConnection, after: Uuid) -> diesel::QueryResult<(Option<Uuid>, u32, u32)> {
        let (first, end) = self.ids();
        let find = sql(format!(include_str!("find_waiting_of_day.sql"), rows = Removal::MAX_ROWS));
        let find = find.bind(after.max(first)).bind(end);
        let (next, looked, deliveries, webhooks): (_, i64, Vec<Uuid>, Vec<Uuid>) = find.value(conn).await?;
        sql(DELETE_HELD).bind(&webhooks).bind(&deliveries).execute(conn).await?;
        let cancelled = cancel_waiting(conn, &deliveries).await?;
        let looked = u32::try_from(looked).unwrap_or(u32::MAX);
        Ok((next, looked, u32::try_from(cancelled).unwrap_or(u32::MAX)))
    }

    fn drop_log(self) -> String {
        let names = self.partitions().map(|partition| partition.name).join(", ");
        // A dump or a vacuum that holds this day is found before everybody has to wait. These locks are freed again, as
        // somebody who holds a table may wait for them. After `LOCK`, only a vacuum can have come in between.
        let lock = format!("LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE");
        format!(
            "{TIMEOUTS}; SAVEPOINT probe; {lock}; ROLLBACK TO probe; {LOCK_TABLES}; {lock} NOWAIT; DROP TABLE {names}"
        )
    }

    fn events(self) -> Partition {
        let [_, events, _] = self.partitions();
        events
    }
}
