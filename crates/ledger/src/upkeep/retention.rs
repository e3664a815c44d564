//! Retention: deletes what is too old to keep, and locks nothing for long. Never deletes what still waits, except a delivery
//! that was held for a slow receiver for as long as history is kept.

use std::time::Duration;

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    clock::now,
    error::LedgerError,
    upkeep::{
        leader::Leader,
        partitions::{Day, named},
    },
};

/// Rows that one cleaning statement looks at: about a tenth of a second.
const CHUNK: i64 = Cleaning::ROWS as i64;
/// Rows that one statement searches for deliveries that wait: some tens of milliseconds.
const SEARCHED: i64 = Search::ROWS as i64;
/// A day is kept this much longer: whoever found it young enough has stored or resent a delivery of it by then.
const MARGIN: Duration = Duration::from_secs(60 * 60);

/// While a drop waits for a reader, everybody else waits behind it, once for each table. So it waits only briefly.
const DROP_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";

/// A search for deliveries that still wait in a day older than the retention, and how far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    day: Day,
    cursor: Uuid,
}

impl Search {
    /// Rows that a step looks at.
    pub const ROWS: u32 = 10_000;
}

/// The result of a step of a search.
#[derive(Debug)]
pub enum Searched {
    /// Nothing waits so far.
    Further(Search),
    /// A delivery waits: the day has to stay. Everything else in it is to be cleaned.
    Waiting(Day),
    /// Nothing waits in the whole day.
    Nothing(Finished),
}

/// Proof that nothing waits in a day. Nothing will: its events are too old to be taken, and its deliveries too old to
/// be sent again.
#[derive(Debug)]
pub struct Finished(Day);

/// A cleaning of a day whose partitions have to stay, and how far it has come.
#[derive(Clone, Debug)]
pub struct Cleaning {
    day: Day,
    before: OffsetDateTime,
    cursor: Cursor,
}

#[derive(Clone, Debug)]
enum Cursor {
    Deliveries(Uuid),
    Events(EventKey),
}

type EventKey = (OffsetDateTime, Uuid, Uuid, String);

/// The result of a step of a cleaning.
#[derive(Clone, Debug)]
pub struct Cleaned {
    /// Deleted deliveries and events. Attempts are not counted.
    pub rows: u64,
    /// Those of them that were held for slow receivers.
    pub ended: u64,
    /// What remains to be done.
    pub rest: Option<Cleaning>,
}

impl From<Day> for Search {
    fn from(day: Day) -> Self {
        Self { day, cursor: Uuid::nil() }
    }
}

impl Finished {
    /// The day.
    #[must_use]
    pub const fn day(&self) -> Day {
        self.0
    }
}

impl Cleaning {
    /// Rows that a step looks at.
    pub const ROWS: u32 = 5_000;

    /// Begins at the day's first delivery. Rows that are younger than `before` stay.
    #[must_use]
    pub const fn of_day(day: Day, before: OffsetDateTime) -> Self {
        Self { day, before, cursor: Cursor::Deliveries(Uuid::nil()) }
    }
}

#[derive(QueryableByName)]
struct SearchRow {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    cursor: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = Bool)]
    waits: bool,
}

#[derive(QueryableByName)]
struct DeliveriesChunk {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    cursor: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    looked: i64,
    #[diesel(sql_type = BigInt)]
    gone: i64,
    #[diesel(sql_type = BigInt)]
    ended: i64,
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
    gone: i64,
}

impl Leader {
    /// The time by the database's clock.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn now(&mut self) -> Result<OffsetDateTime, LedgerError> {
        self.run(async |conn| now(conn).await).await
    }

    /// The highest age of a database's oldest transaction id, in transactions. The server refuses writes at 2 billion.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn transaction_age(&mut self) -> Result<i32, LedgerError> {
        let highest = diesel::dsl::sql::<Integer>("(SELECT max(age(datfrozenxid)) FROM pg_database)");
        self.run(async |conn| diesel::select(highest).get_result(conn).await).await
    }

    /// The days that at `now` have been over for `keep` and an hour, oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn days_old(&mut self, now: OffsetDateTime, keep: Duration) -> Result<Vec<Day>, LedgerError> {
        let before = now - keep - MARGIN;
        Ok(self.days().await?.into_iter().take_while(|day| day.is_over(before)).collect())
    }

    /// Searches the next 10,000 deliveries of a day for one that waits.
    ///
    /// # Errors
    /// When the database does not answer. The step can be taken again.
    pub async fn day_search(&mut self, Search { day, cursor }: Search) -> Result<Searched, LedgerError> {
        let table = format!("deliveries_{}", day.suffix());
        let search = diesel::sql_query(format!(
            "WITH step AS MATERIALIZED (SELECT id, state FROM {table} WHERE id > $1 ORDER BY id LIMIT {SEARCHED}) \
             SELECT (SELECT id FROM step ORDER BY id DESC LIMIT 1) AS cursor, (SELECT count(*) FROM step) AS looked, \
                    EXISTS (SELECT FROM step WHERE state IN ('pending', 'retrying')) AS waits"
        ))
        .bind::<SqlUuid, _>(cursor);
        let found: Option<SearchRow> = self
            .run(async |conn| match named(conn, &table).await?.is_empty() {
                true => Ok(None),
                false => search.get_result(conn).await.map(Some),
            })
            .await?;
        Ok(match found {
            Some(SearchRow { waits: true, .. }) => Searched::Waiting(day),
            Some(SearchRow { cursor: Some(cursor), looked: SEARCHED, .. }) => Searched::Further(Search { day, cursor }),
            _ => Searched::Nothing(Finished(day)),
        })
    }

    /// Drops a day's partitions, all at once.
    ///
    /// # Errors
    /// When the database does not answer, or somebody reads the day. Nothing has happened then.
    pub async fn day_drop(&mut self, Finished(day): &Finished) -> Result<(), LedgerError> {
        let suffix = day.suffix();
        let drop = format!("DROP TABLE IF EXISTS attempts_{suffix}, deliveries_{suffix}, events_{suffix}");
        self.run(async |conn| {
            conn.transaction(async |conn| {
                conn.batch_execute(DROP_TIMEOUT).await?;
                conn.batch_execute(&drop).await
            })
            .await
        })
        .await
    }

    /// Takes one step of a cleaning: deletes deliveries with their attempts, then events without deliveries. Deletes a
    /// delivery that is finished, or that is held for a slow receiver since before the cleaning's time.
    ///
    /// # Errors
    /// When the database does not answer, or a row is locked. The step can be taken again.
    pub async fn clean(&mut self, cleaning: &Cleaning) -> Result<Cleaned, LedgerError> {
        let (gone, ended, cursor) = match &cleaning.cursor {
            Cursor::Deliveries(after) => self.clean_deliveries(cleaning, *after).await?,
            Cursor::Events(after) => self.clean_events(cleaning, after).await?,
        };
        let rest = cursor.map(|cursor| Cleaning { cursor, ..cleaning.clone() });
        let rows = |count: i64| u64::try_from(count).unwrap_or_default();
        Ok(Cleaned { rows: rows(gone), ended: rows(ended), rest })
    }

    async fn clean_deliveries(
        &mut self,
        Cleaning { day, before, .. }: &Cleaning,
        after: Uuid,
    ) -> Result<(i64, i64, Option<Cursor>), LedgerError> {
        let clean = format!(include_str!("clean_deliveries.sql"), day = day.suffix(), rows = CHUNK);
        let chunk = diesel::sql_query(clean).bind::<SqlUuid, _>(after).bind::<Timestamptz, _>(*before);
        let chunk: DeliveriesChunk = self.run(async |conn| chunk.get_result(conn).await).await?;
        let cursor = match chunk.cursor {
            Some(cursor) if chunk.looked == CHUNK => Cursor::Deliveries(cursor),
            _ => Cursor::Events((ANCIENT, Uuid::nil(), Uuid::nil(), String::new())),
        };
        Ok((chunk.gone, chunk.ended, Some(cursor)))
    }

    async fn clean_events(
        &mut self,
        Cleaning { day, before, .. }: &Cleaning,
        (at, id, tenant, event_type): &EventKey,
    ) -> Result<(i64, i64, Option<Cursor>), LedgerError> {
        let clean = format!(include_str!("clean_events.sql"), day = day.suffix(), rows = CHUNK);
        let chunk = diesel::sql_query(clean)
            .bind::<Timestamptz, _>(at)
            .bind::<SqlUuid, _>(id)
            .bind::<SqlUuid, _>(tenant)
            .bind::<Text, _>(event_type)
            .bind::<Timestamptz, _>(*before);
        let chunk: EventsChunk = self.run(async |conn| chunk.get_result(conn).await).await?;
        let cursor = chunk.occurred_at.zip(chunk.id).zip(chunk.tenant_id).zip(chunk.event_type);
        let cursor = cursor.map(|(((at, id), tenant), event_type)| Cursor::Events((at, id, tenant, event_type)));
        Ok((chunk.gone, 0, cursor.filter(|_| chunk.looked == CHUNK)))
    }
}

/// Before every event.
const ANCIENT: OffsetDateTime = time::macros::datetime!(-4000-01-01 00:00 UTC);
