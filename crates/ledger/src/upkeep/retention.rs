//! Retention: drops days that are too old, and locks nothing for long.
//!
//! Waiting deliveries are never lost. The partitions of a day with waiting deliveries are replaced by tables that hold only
//! these. While rows are copied into the tables, a trigger repeats each change of the day there. So a replacement takes as
//! long as a drop, however many deliveries wait.

use std::time::Duration;

use diesel::{
    QueryableByName,
    sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    clock::now,
    error::LedgerError,
    hot::waiting::cancel_waiting,
    upkeep::{
        leader::Leader,
        partitions::{Day, Partition, named},
    },
};

/// Rows that one statement looks at, and may copy: about a tenth of a second.
const CHUNK: i64 = Removal::ROWS as i64;
/// Events that one statement looks at: it reads all of their deliveries, and an event may have very many.
const EVENTS: i64 = 500;
/// A day is kept this much longer: whoever found it young enough has stored or resent a delivery of it by then.
const MARGIN: Duration = Duration::from_secs(60 * 60);

/// While a drop waits for a reader, everybody else waits behind it, once for each table. So it waits only briefly.
const DROP_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";

/// The removal of a day's log or bodies, except those of waiting deliveries, and its next step.
///
/// No waiting delivery is added meanwhile: the day's events are too old to be stored, and its deliveries too old to be sent
/// again.
#[derive(Clone, Debug)]
pub struct Removal {
    day: Day,
    part: Part,
    stage: Stage,
}

/// A part of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Deliveries and attempts; events as well, if no delivery waits.
    Log,
    /// Events, with their bodies.
    Bodies,
}

#[derive(Clone, Debug)]
enum Stage {
    Count { after: Key, rows: i64, kept: i64 },
    Prepare { kept: i64 },
    Copy { after: Key },
    Replace,
    Drop,
}

#[derive(Clone, Debug)]
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
    /// Rows that were copied.
    pub copied: u32,
    /// True if the step dropped the old partitions.
    pub is_dropped: bool,
}

/// Rows that were found by a step, and those of them that have to be kept.
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
        Self { day, part, stage: Stage::Count { after: Key::first(part), rows: 0, kept: 0 } }
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
            Part::Log => vec![attempts, deliveries],
            Part::Bodies => vec![events],
        }
    }

    /// The partition whose changes are repeated.
    fn watched(&self) -> String {
        let table = if self.part == Part::Log { "deliveries" } else { "events" };
        format!("{table}_{}", self.day.suffix())
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

/// The stage after all rows were counted. A day without a delivery that waits is dropped. Another one is copied, unless
/// nothing of it goes.
const fn after_count(part: Part, rows: i64, kept: i64) -> Option<Stage> {
    match (part, rows, kept) {
        (Part::Log, _, 0) => Some(Stage::Drop),
        (_, 0, _) => None,
        _ if kept == rows => None,
        _ => Some(Stage::Prepare { kept }),
    }
}

#[derive(QueryableByName)]
struct DeliveriesChunk {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    cursor: Option<Uuid>,
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
        let done = |stage| Removed { rest: stage, looked: 0, copied: 0, is_dropped: false };
        let count = |rows: i64| u32::try_from(rows).unwrap_or(u32::MAX);
        match &removal.stage {
            Stage::Count { after, rows, kept } => {
                let Some(found) =
                    self.run("removal_step", async |conn| removal.find(conn, after, Purpose::Count).await).await?
                else {
                    return Ok(done(None));
                };
                let (rows, kept) = (rows + found.looked, kept + found.kept);
                let stage = match found.next {
                    Some(after) => Some(Stage::Count { after, rows, kept }),
                    None => after_count(removal.part, rows, kept),
                };
                Ok(Removed { looked: count(found.looked), ..done(stage.and_then(|stage| removal.at(stage))) })
            }
            // The day was dropped meanwhile.
            Stage::Prepare { .. } | Stage::Replace
                if self.run("removal_step", async |conn| named(conn, &removal.watched()).await).await?.is_empty() =>
            {
                Ok(done(None))
            }
            Stage::Prepare { kept } => {
                self.change_tables(&removal.prepare()).await?;
                let copy = Stage::Copy { after: Key::first(removal.part) };
                Ok(done(removal.at(if *kept == 0 { Stage::Replace } else { copy })))
            }
            Stage::Copy { after } => {
                let copy = async |conn: &mut AsyncPgConnection| {
                    conn.transaction(async |conn| removal.find(conn, after, Purpose::Copy).await).await
                };
                let Some(Found { next, looked, kept }) = self.run("removal_step", copy).await? else {
                    return Ok(done(None));
                };
                let stage = next.map_or(Stage::Replace, |after| Stage::Copy { after });
                Ok(Removed { looked: count(looked), copied: count(kept), ..done(removal.at(stage)) })
            }
            Stage::Replace => {
                self.change_tables(&removal.replace()).await?;
                Ok(Removed { is_dropped: true, ..done(None) })
            }
            Stage::Drop => {
                self.change_tables(&removal.drop_all()).await?;
                Ok(Removed { is_dropped: true, ..done(None) })
            }
        }
    }

    async fn change_tables(&mut self, statements: &str) -> Result<(), LedgerError> {
        self.run("change_tables", async |conn| {
            conn.transaction(async |conn| {
                conn.batch_execute(DROP_TIMEOUT).await?;
                conn.batch_execute(statements).await
            })
            .await
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Count,
    Copy,
}

impl Removal {
    /// Looks at the next rows, and copies those that have to be kept, if that is wanted. `None` if there is no partition.
    async fn find(
        &self,
        conn: &mut AsyncPgConnection,
        after: &Key,
        purpose: Purpose,
    ) -> diesel::QueryResult<Option<Found>> {
        for name in [self.watched(), format!("deliveries_{}", self.day.suffix())] {
            if named(conn, &name).await?.is_empty() {
                return Ok(None);
            }
        }
        match after {
            Key::Delivery(after) => self.find_deliveries(conn, *after, purpose).await.map(Some),
            Key::Event((at, id, tenant, event_type)) => {
                let copy = match purpose {
                    Purpose::Count => String::from("SELECT"),
                    Purpose::Copy => format!(
                        "INSERT INTO events_{day}_kept \
                         SELECT e.* FROM kept CROSS JOIN LATERAL ( \
                           SELECT * FROM events_{day} AS e WHERE e.occurred_at = kept.occurred_at AND e.id = kept.id \
                             AND e.tenant_id = kept.tenant_id AND e.event_type = kept.event_type LIMIT 1 \
                         ) AS e ON CONFLICT DO NOTHING",
                        day = self.day.suffix()
                    ),
                };
                let find =
                    format!(include_str!("find_kept_events.sql"), day = self.day.suffix(), rows = EVENTS, copy = copy);
                let find = diesel::sql_query(find)
                    .bind::<Timestamptz, _>(at)
                    .bind::<SqlUuid, _>(id)
                    .bind::<SqlUuid, _>(tenant)
                    .bind::<Text, _>(event_type);
                let chunk: EventsChunk = find.get_result(conn).await?;
                let key = chunk.occurred_at.zip(chunk.id).zip(chunk.tenant_id).zip(chunk.event_type);
                let key = key.map(|(((at, id), tenant), event_type)| Key::Event((at, id, tenant, event_type)));
                let next = key.filter(|_| chunk.looked == EVENTS);
                Ok(Some(Found { next, looked: chunk.looked, kept: chunk.kept }))
            }
        }
    }

    /// Deliveries are locked by one statement and copied by others, which see all that was recorded before: an attempt is
    /// recorded with a change of its delivery.
    async fn find_deliveries(
        &self,
        conn: &mut AsyncPgConnection,
        after: Uuid,
        purpose: Purpose,
    ) -> diesel::QueryResult<Found> {
        let day = self.day.suffix();
        let lock = if purpose == Purpose::Copy { "FOR UPDATE" } else { "" };
        let find = format!(include_str!("find_kept_deliveries.sql"), day = day, rows = CHUNK, lock = lock);
        let chunk: DeliveriesChunk = diesel::sql_query(find).bind::<SqlUuid, _>(after).get_result(conn).await?;
        if purpose == Purpose::Copy && !chunk.kept.is_empty() {
            for (table, key) in [("deliveries", "id"), ("attempts", "delivery_id")] {
                let copy = diesel::sql_query(format!(
                    "INSERT INTO {table}_{day}_kept SELECT * FROM {table}_{day} WHERE {key} = ANY ($1) \
                     ON CONFLICT DO NOTHING"
                ));
                copy.bind::<Array<SqlUuid>, _>(&chunk.kept).execute(conn).await?;
            }
        }
        let next = chunk.cursor.filter(|_| chunk.looked == CHUNK).map(Key::Delivery);
        Ok(Found { next, looked: chunk.looked, kept: i64::try_from(chunk.kept.len()).unwrap_or(i64::MAX) })
    }

    /// Makes empty tables for what is kept, in place of those that a leader has left behind, and the trigger that repeats
    /// changes there. The trigger waits for changes that are under way, so the copy sees them.
    fn prepare(&self) -> String {
        let watched = self.watched();
        let trigger = format!(
            "CREATE OR REPLACE TRIGGER repeat_in_kept AFTER INSERT OR UPDATE OR DELETE ON {watched} FOR EACH ROW \
             EXECUTE FUNCTION repeat_in_kept()"
        );
        let tables = self.partitions().into_iter().map(|partition| {
            let name = format!("{}_kept", partition.name);
            format!("; DROP TABLE IF EXISTS {name}; {}", partition.create(&name))
        });
        trigger + &tables.collect::<String>()
    }

    /// Replaces the partitions.
    fn replace(&self) -> String {
        let replace = self.partitions().into_iter().map(|partition| {
            let name = &partition.name;
            format!("DROP TABLE {name}; ALTER TABLE {name}_kept RENAME TO {name}; {}; ", partition.attach())
        });
        replace.collect()
    }

    /// Drops all of the day, and tables that a leader has left behind. Without a log, nobody needs the events.
    fn drop_all(&self) -> String {
        let names = self.day.partitions();
        let names = names.iter().map(|Partition { name, .. }| format!("{name}, {name}_kept"));
        format!("DROP TABLE IF EXISTS {}", names.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_copied_if_anything_of_it_goes_and_dropped_if_nothing_waits() {
        let stage = |part, rows, kept| match after_count(part, rows, kept) {
            Some(Stage::Drop) => "drop",
            Some(Stage::Prepare { .. }) => "copy",
            None => "stay",
            other => panic!("{other:?}"),
        };
        for (rows, kept, of_log, of_bodies) in [
            (0, 0, "drop", "stay"),
            (1_000_000, 0, "drop", "copy"),
            (1_000_000, 100, "copy", "copy"),
            (10, 9, "copy", "copy"),
            (1_000_000, 900_000, "copy", "copy"),
            (1_000_000, 999_999, "copy", "copy"),
            (1, 1, "stay", "stay"),
        ] {
            assert_eq!(stage(Part::Log, rows, kept), of_log, "{kept} of {rows}");
            assert_eq!(stage(Part::Bodies, rows, kept), of_bodies, "{kept} of {rows}");
        }
    }
}
