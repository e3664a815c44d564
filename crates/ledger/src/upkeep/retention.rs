//! Retention: drops days that are too old, and locks nothing for long.
//!
//! Waiting deliveries are never lost. The partitions of a day are replaced by tables that hold only these, or dropped if
//! these tables are empty. While rows are copied into the tables, a trigger repeats each change of the day there, so a
//! delivery that begins to wait meanwhile is kept as well.

use std::time::Duration;

use diesel::{
    QueryableByName,
    sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    clock::now,
    error::LedgerError,
    hot::waiting::cancel_waiting,
    upkeep::{
        leader::{Leader, PATIENCE},
        partitions::{Day, Name, Partition, named},
    },
};

/// Rows that one statement looks at: about a tenth of a second.
const CHUNK: i64 = Removal::ROWS as i64;
/// Waiting deliveries that one statement copies, with their attempts and events: 128 MiB of the largest bodies.
const COPIED: i64 = 500;
/// Events that one statement looks at: it reads all of their deliveries, and an event may have very many.
const EVENTS: i64 = 500;
/// The time for the replacement of a day: the server deletes its files, 3 GB a second here, before it answers.
const REPLACED_WITHIN: Duration = Duration::from_secs(30 * 60);
/// A day is kept this much longer: whoever found it young enough has stored or resent a delivery of it by then.
const MARGIN: Duration = Duration::from_secs(60 * 60);

/// While a drop waits for a reader, everybody else waits behind it, once for each table. So it waits only briefly. The
/// server soon frees what a leader has locked that vanishes.
const TIMEOUTS: &str = "SET LOCAL lock_timeout = '100ms'; SET LOCAL idle_in_transaction_session_timeout = '1s'";

/// Has everybody else wait until a day is replaced. The order is that of the pipeline: while others wait for the first
/// table, they hold none of the others. Where another order has somebody wait for the first table while this waits for
/// him, this fails, and is tried again.
const LOCK: &str = "LOCK TABLE ONLY deliveries, ONLY events, ONLY attempts IN ACCESS EXCLUSIVE MODE";
/// The trigger of a day that is being copied.
const TRIGGER: &str = "repeat_in_kept";

/// The removal of a day's log or bodies, except those of waiting deliveries, and its next step.
#[derive(Clone, Debug)]
pub struct Removal {
    day: Day,
    part: Part,
    stage: Stage,
}

/// A part of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Deliveries, attempts and events.
    Log,
    /// Events, with their bodies.
    Bodies,
}

#[derive(Clone, Debug)]
enum Stage {
    Look { after: Key },
    Prepare,
    Copy { after: Uuid },
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Delivery(Uuid),
    Event((OffsetDateTime, Uuid, Uuid, String)),
}

/// The result of a step of a removal.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The next step.
    pub rest: Option<Removal>,
    /// Rows that were looked at.
    pub looked: u32,
    /// Deliveries that were copied, or whose events were.
    pub copied: u32,
    /// True if the step dropped the old partitions.
    pub is_dropped: bool,
}

/// Rows that were looked at, and those of them that have to be kept.
struct Found {
    next: Option<Key>,
    looked: i64,
    kept: i64,
}

/// The result of a step through the held jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldEnded {
    /// Where the next step begins.
    pub next: Option<(Uuid, Uuid)>,
    /// Jobs that were looked at.
    pub looked: u32,
    /// Deliveries that were cancelled.
    pub ended: u32,
}

impl Removal {
    /// Rows that a step looks at, at most.
    pub const ROWS: u32 = 5_000;

    /// Begins at the first row of a day.
    #[must_use]
    pub const fn of(day: Day, part: Part) -> Self {
        Self { day, part, stage: Stage::Look { after: Key::first(part) } }
    }

    /// The day.
    #[must_use]
    pub const fn day(&self) -> Day {
        self.day
    }

    /// The part that is removed.
    #[must_use]
    pub const fn part(&self) -> Part {
        self.part
    }

    const fn at(&self, stage: Stage) -> Option<Self> {
        Some(Self { day: self.day, part: self.part, stage })
    }

    /// The partitions that are replaced.
    fn partitions(&self) -> Vec<Partition> {
        let [attempts, deliveries, events] = self.day.partitions();
        match self.part {
            Part::Log => vec![attempts, deliveries, events],
            Part::Bodies => vec![events],
        }
    }
}

impl Key {
    const fn first(part: Part) -> Self {
        match part {
            Part::Log => Self::Delivery(Uuid::nil()),
            Part::Bodies => Self::Event((ANCIENT, Uuid::nil(), Uuid::nil(), String::new())),
        }
    }
}

/// Before every event.
const ANCIENT: OffsetDateTime = time::macros::datetime!(-4000-01-01 00:00 UTC);

impl Found {
    /// The next stage: a day is copied once a row is found that goes, and stays if there is none. A day without any row
    /// needs no partitions.
    fn stage_after(self, part: Part, after: &Key) -> Option<Stage> {
        let is_empty = part == Part::Log && self.looked == 0 && *after == Key::first(part);
        if self.kept < self.looked || is_empty {
            return Some(Stage::Prepare);
        }
        self.next.map(|after| Stage::Look { after })
    }
}

#[derive(QueryableByName)]
struct DeliveriesChunk {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    next: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = Array<SqlUuid>)]
    kept: Vec<Uuid>,
}

#[derive(QueryableByName)]
struct EventsChunk {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    occurred_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    tenant_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    event_type: Option<String>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = BigInt)]
    kept: i64,
}

#[derive(QueryableByName)]
struct HeldChunk {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    webhook_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    delivery_id: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = Array<SqlUuid>)]
    ended: Vec<Uuid>,
}

impl Leader {
    /// The time by the database's clock.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn now(&mut self) -> Result<OffsetDateTime, LedgerError> {
        self.run("now", async |conn| now(conn).await).await
    }

    /// The highest age of a database's oldest transaction id, in transactions. The server refuses writes at 2 billion.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn transaction_age(&mut self) -> Result<i32, LedgerError> {
        let highest = diesel::dsl::sql::<Integer>("(SELECT max(age(datfrozenxid)) FROM pg_database)");
        self.run("transaction_age", async |conn| diesel::select(highest).get_result(conn).await).await
    }

    /// The time since the server archived a WAL file, in seconds; if it archived none, since it counts.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn archive_age(&mut self) -> Result<Option<f64>, LedgerError> {
        let age = diesel::dsl::sql::<Nullable<Double>>(
            "(SELECT extract(epoch FROM now() - coalesce(last_archived_time, stats_reset))::float8 FROM pg_stat_archiver)",
        );
        self.run("archive_age", async |conn| diesel::select(age).get_result(conn).await).await
    }

    /// The days that at `now` have been over for `keep` and an hour, oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn days_old(&mut self, now: OffsetDateTime, keep: Duration) -> Result<Vec<Day>, LedgerError> {
        let before = now - keep - MARGIN;
        Ok(self.days().await?.into_iter().take_while(|day| day.is_over(before)).collect())
    }

    /// Takes the next step of a removal.
    ///
    /// # Errors
    /// When the database does not answer, or somebody has locked the day or a row. Nothing has happened then, and the step
    /// can be taken again.
    pub async fn removal_step(&mut self, removal: &Removal) -> Result<Removed, LedgerError> {
        let done = |stage: Option<Stage>| Removed {
            rest: stage.and_then(|stage| removal.at(stage)),
            looked: 0,
            copied: 0,
            is_dropped: false,
        };
        let count = |rows: i64| u32::try_from(rows).unwrap_or(u32::MAX);
        let patience = if matches!(removal.stage, Stage::Replace) { REPLACED_WITHIN } else { PATIENCE };
        self.run_within(patience, "removal_step", async |conn| {
            conn.transaction(async |conn| {
                if !have_tables(conn, &removal.day.partitions(), "").await? {
                    return Ok(done(None));
                }
                // Somebody has dropped the copy: it begins anew.
                let is_prepared = matches!(removal.stage, Stage::Copy { .. } | Stage::Replace);
                if is_prepared && !have_tables(conn, &removal.partitions(), "_kept").await? {
                    return Ok(done(Some(Stage::Prepare)));
                }
                match &removal.stage {
                    Stage::Look { after } => {
                        let found = removal.look(conn, after).await?;
                        let looked = count(found.looked);
                        Ok(Removed { looked, ..done(found.stage_after(removal.part, after)) })
                    }
                    Stage::Prepare => {
                        conn.batch_execute(TIMEOUTS).await?;
                        conn.batch_execute(&removal.prepare()).await?;
                        Ok(done(Some(Stage::Copy { after: Uuid::nil() })))
                    }
                    Stage::Copy { after } => {
                        let chunk = removal.copy(conn, *after).await?;
                        let next = chunk.next.map_or(Stage::Replace, |after| Stage::Copy { after });
                        let (looked, copied) =
                            (count(chunk.looked), u32::try_from(chunk.kept.len()).unwrap_or(u32::MAX));
                        Ok(Removed { looked, copied, ..done(Some(next)) })
                    }
                    Stage::Replace => {
                        removal.replace(conn).await?;
                        Ok(Removed { is_dropped: true, ..done(None) })
                    }
                }
            })
            .await
        })
        .await
    }

    /// Deletes what other leaders have left of removals: triggers and tables. The days `under_way` keep theirs.
    ///
    /// # Errors
    /// When the database does not answer, or somebody has locked such a day. It can be called again.
    pub async fn remains_clear(&mut self, under_way: &[Day]) -> Result<(), LedgerError> {
        let tables =
            r"SELECT relname::text AS name FROM pg_class WHERE relkind = 'r' AND relname LIKE 'events\_%\_kept'";
        self.run("remains_clear", async |conn| {
            let tables: Vec<Name> = diesel::sql_query(tables).load(conn).await?;
            let days = tables.iter().filter_map(|table| Day::of_partition(table.name.strip_suffix("_kept")?));
            for day in days.filter(|day| !under_way.contains(day)) {
                conn.transaction(async |conn| {
                    conn.batch_execute(TIMEOUTS).await?;
                    conn.batch_execute(&clear(day)).await
                })
                .await?;
            }
            Ok(())
        })
        .await
    }

    /// Looks at held jobs after those of `after`: adds notices that they are about to end, and cancels the deliveries of
    /// those that were held for too long: for `held` while their webhook is paused, or as their receiver is slow since
    /// before `before`.
    ///
    /// # Errors
    /// When the database does not answer, or a row is locked. The step can be taken again.
    pub async fn held_end(
        &mut self,
        (webhook, delivery): (Uuid, Uuid),
        before: OffsetDateTime,
        held: Duration,
    ) -> Result<HeldEnded, LedgerError> {
        let end = diesel::sql_query(format!(include_str!("end_held.sql"), rows = CHUNK))
            .bind::<SqlUuid, _>(webhook)
            .bind::<SqlUuid, _>(delivery)
            .bind::<Timestamptz, _>(before)
            .bind::<Double, _>(held.as_secs_f64());
        let (chunk, ended) = self
            .run("held_end", async |conn| {
                conn.transaction(async |conn| {
                    let chunk: HeldChunk = end.get_result(conn).await?;
                    let ended = cancel_waiting(conn, &chunk.ended).await?;
                    Ok((chunk, ended))
                })
                .await
            })
            .await?;
        let next = chunk.webhook_id.zip(chunk.delivery_id).filter(|_| chunk.looked == CHUNK);
        let looked = u32::try_from(chunk.looked).unwrap_or(u32::MAX);
        Ok(HeldEnded { next, looked, ended: u32::try_from(ended).unwrap_or(u32::MAX) })
    }
}

impl Removal {
    /// Looks at the next rows: deliveries, or events.
    async fn look(&self, conn: &mut AsyncPgConnection, after: &Key) -> diesel::QueryResult<Found> {
        let (at, id, tenant, event_type) = match after {
            Key::Delivery(after) => {
                let chunk = self.find_deliveries(conn, *after, CHUNK, "").await?;
                let kept = i64::try_from(chunk.kept.len()).unwrap_or(i64::MAX);
                return Ok(Found { next: chunk.next.map(Key::Delivery), looked: chunk.looked, kept });
            }
            Key::Event(key) => key,
        };
        let find = format!(include_str!("find_kept_events.sql"), day = self.day.suffix(), rows = EVENTS);
        let find = diesel::sql_query(find)
            .bind::<Timestamptz, _>(at)
            .bind::<SqlUuid, _>(id)
            .bind::<SqlUuid, _>(tenant)
            .bind::<Text, _>(event_type);
        let chunk: EventsChunk = find.get_result(conn).await?;
        let key = chunk.occurred_at.zip(chunk.id).zip(chunk.tenant_id).zip(chunk.event_type);
        let key = key.map(|(((at, id), tenant), event_type)| Key::Event((at, id, tenant, event_type)));
        Ok(Found { next: key.filter(|_| chunk.looked == EVENTS), looked: chunk.looked, kept: chunk.kept })
    }

    /// Copies the waiting ones of the next deliveries. They are locked by one statement and copied by another one, which
    /// sees all that was recorded before: an attempt is recorded with a change of its delivery.
    async fn copy(&self, conn: &mut AsyncPgConnection, after: Uuid) -> diesel::QueryResult<DeliveriesChunk> {
        let chunk = self.find_deliveries(conn, after, COPIED, "FOR UPDATE").await?;
        if !chunk.kept.is_empty() {
            let copy = diesel::sql_query("SELECT copy_kept($1, $2)").bind::<Text, _>(self.day.suffix());
            copy.bind::<Array<SqlUuid>, _>(&chunk.kept).execute(conn).await?;
        }
        Ok(chunk)
    }

    async fn find_deliveries(
        &self,
        conn: &mut AsyncPgConnection,
        after: Uuid,
        most: i64,
        lock: &str,
    ) -> diesel::QueryResult<DeliveriesChunk> {
        let find = format!(
            include_str!("find_kept_deliveries.sql"),
            day = self.day.suffix(),
            rows = CHUNK,
            most = most,
            lock = lock
        );
        diesel::sql_query(find).bind::<SqlUuid, _>(after).get_result(conn).await
    }

    /// Makes empty tables for what is kept, in place of those that a leader has left behind, and the trigger that repeats
    /// changes there. The trigger waits for changes that are under way, so the copy sees them.
    fn prepare(&self) -> String {
        let tables =
            self.partitions().into_iter().map(|partition| partition.create(&format!("{}_kept", partition.name)));
        format!(
            "{clear}; {tables}; CREATE TRIGGER {TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON deliveries_{day} \
             FOR EACH ROW EXECUTE FUNCTION repeat_in_kept()",
            clear = clear(self.day),
            tables = tables.collect::<Vec<_>>().join("; "),
            day = self.day.suffix(),
        )
    }

    /// Replaces the partitions, or drops all of the day if nothing of its log is kept: without a log, nobody needs the events.
    async fn replace(&self, conn: &mut AsyncPgConnection) -> diesel::QueryResult<()> {
        let [attempts, deliveries, events] = self.day.partitions().map(|partition| partition.name);
        let kept = self.partitions().into_iter().map(|partition| format!("{}_kept", partition.name));
        let names = [deliveries, events, attempts].into_iter().chain(kept).collect::<Vec<_>>().join(", ");
        // A dump or a vacuum that holds this day is found before everybody has to wait. These locks are freed again, as
        // somebody who holds a table may wait for them. After `LOCK`, only a vacuum can have come in between.
        let lock = format!("LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE");
        let locks = format!("{TIMEOUTS}; SAVEPOINT probe; {lock}; ROLLBACK TO probe; {LOCK}; {lock} NOWAIT");
        conn.batch_execute(&locks).await?;
        let is_kept = match self.part {
            Part::Log => {
                let is_kept = format!("EXISTS (SELECT FROM deliveries_{}_kept)", self.day.suffix());
                diesel::select(diesel::dsl::sql::<Bool>(&is_kept)).get_result(conn).await?
            }
            Part::Bodies => true,
        };
        let statements = if is_kept { self.attach() } else { self.drop_all() };
        conn.batch_execute(&statements).await
    }

    fn attach(&self) -> String {
        let replace = self.partitions().into_iter().map(|partition| {
            let name = &partition.name;
            format!("; DROP TABLE {name}; ALTER TABLE {name}_kept RENAME TO {name}; {}", partition.attach())
        });
        format!("DROP TRIGGER {TRIGGER} ON deliveries_{}", self.day.suffix()) + &replace.collect::<String>()
    }

    fn drop_all(&self) -> String {
        let names = self.day.partitions();
        let names = names.iter().map(|Partition { name, .. }| format!("{name}, {name}_kept"));
        format!("DROP TABLE {}", names.collect::<Vec<_>>().join(", "))
    }
}

/// Looks whether there is a table of each partition's name with this end.
async fn have_tables(conn: &mut AsyncPgConnection, of: &[Partition], end: &str) -> diesel::QueryResult<bool> {
    for Partition { name, .. } in of {
        if named(conn, &format!("{name}{end}")).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Drops the trigger and the tables of a removal.
fn clear(day: Day) -> String {
    let tables = day.partitions().map(|Partition { name, .. }| format!("{name}_kept"));
    format!(
        "DROP TRIGGER IF EXISTS {TRIGGER} ON deliveries_{}; DROP TABLE IF EXISTS {}",
        day.suffix(),
        tables.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_copied_if_anything_of_it_goes_or_nothing_is_there() {
        let later = Key::Delivery(Uuid::max());
        for (part, after, looked, kept, expected) in [
            (Part::Log, None, 0, 0, "copy"),
            (Part::Log, Some(&later), 0, 0, "stay"),
            (Part::Log, None, 5_000, 4_999, "copy"),
            (Part::Log, None, 10, 0, "copy"),
            (Part::Log, None, 5_000, 5_000, "look"),
            (Part::Log, None, 1, 1, "stay"),
            (Part::Bodies, None, 0, 0, "stay"),
            (Part::Bodies, None, 10, 9, "copy"),
            (Part::Bodies, None, 1, 1, "stay"),
        ] {
            let next = (looked == CHUNK).then(|| later.clone());
            let first = Key::first(part);
            let stage = match (Found { next, looked, kept }).stage_after(part, after.unwrap_or(&first)) {
                Some(Stage::Prepare) => "copy",
                Some(Stage::Look { .. }) => "look",
                None => "stay",
                other => panic!("{other:?}"),
            };
            assert_eq!(stage, expected, "{kept} of {looked} for {part:?}");
        }
    }
}
