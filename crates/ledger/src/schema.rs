//! The schema's age, and the partitions by day.

use std::time::Duration;

use diesel::{QueryableByName, migration::MigrationSource, pg::Pg, sql_types::Text};
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use domain::DeliveryId;
use time::{Date, OffsetDateTime, macros::format_description};

use crate::{error::LedgerError, pool::Ledger};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Only one process at a time migrates or makes partitions.
const SCHEMA_LOCK: i64 = 0x7765_6268_6f6f_6b73;

/// Partitions exist from this many days back, for events that come late, to this many days ahead.
const DAYS_BACK: i64 = 2;
const DAYS_AHEAD: i64 = 7;

/// How the database's schema compares with what this program was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// Every migration is there (and perhaps newer ones).
    Current,
    /// These migrations are missing.
    Behind(Vec<String>),
}

impl Ledger {
    /// Applies the migrations that are missing and makes the partitions around `today`. Returns the applied ones.
    ///
    /// # Errors
    /// When the database does not answer or refuses a migration.
    pub async fn migrate(&self, today: Date) -> Result<Vec<String>, LedgerError> {
        let mut conn = self.connection().await?;
        conn.batch_execute(&format!("SET statement_timeout = 0; SELECT pg_advisory_lock({SCHEMA_LOCK})")).await?;
        let mut harness = AsyncMigrationHarness::new(conn);
        let applied = harness.run_pending_migrations(MIGRATIONS).map_err(LedgerError::Migration)?;
        let applied = applied.iter().map(ToString::to_string).collect();
        let mut conn = harness.into_inner();
        make_partitions(&mut conn, today).await?;
        Ok(applied)
    }

    /// Compares the database's schema with this program's.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn schema_check(&self) -> Result<SchemaState, LedgerError> {
        #[derive(QueryableByName)]
        struct Version {
            #[diesel(sql_type = Text)]
            version: String,
        }
        let present: Vec<Version> = self
            .run(async |conn| {
                let exists = "SELECT relname::text AS version FROM pg_class \
                              WHERE oid = to_regclass('__diesel_schema_migrations')";
                if diesel::sql_query(exists).load::<Version>(conn).await?.is_empty() {
                    return Ok(Vec::new());
                }
                diesel::sql_query("SELECT version::text FROM __diesel_schema_migrations").load(conn).await
            })
            .await?;
        let known = MigrationSource::<Pg>::migrations(&MIGRATIONS).map_err(LedgerError::Migration)?;
        let is_missing = |name: &String| !present.iter().any(|row| name.replace('-', "").starts_with(&row.version));
        let missing: Vec<_> = known.iter().map(|migration| migration.name().to_string()).filter(is_missing).collect();
        Ok(if missing.is_empty() { SchemaState::Current } else { SchemaState::Behind(missing) })
    }

    /// Makes the partitions around `today` that are missing, unless another process is at it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn partitions_ensure(&self, today: Date) -> Result<(), LedgerError> {
        let mut conn = self.connection().await?;
        conn.batch_execute(&format!("SELECT pg_advisory_lock({SCHEMA_LOCK})")).await?;
        make_partitions(&mut conn, today).await
    }
}

async fn make_partitions(conn: &mut AsyncPgConnection, today: Date) -> Result<(), LedgerError> {
    for offset in -DAYS_BACK..=DAYS_AHEAD {
        let Some(day) = today.checked_add(time::Duration::days(offset)) else { continue };
        for statement in partition_statements(day) {
            if let Err(error) = conn.batch_execute(&statement).await {
                // Rows of that day are in the default partition already: they stay there, nothing is lost.
                tracing::warn!(%day, %error, "a partition could not be made; its rows go to the default partition");
            }
        }
    }
    Ok(())
}

fn partition_statements(day: Date) -> [String; 3] {
    let name = day.format(format_description!("[year][month][day]")).unwrap_or_default();
    let start = day.midnight().assume_utc();
    let end = start + Duration::from_secs(24 * 60 * 60);
    let bound = |moment: OffsetDateTime| {
        DeliveryId::bound_at_millis(u64::try_from(moment.unix_timestamp()).unwrap_or_default() * 1000)
    };
    let (first, last) = (bound(start), bound(end));
    [
        format!(
            "CREATE TABLE IF NOT EXISTS events_{name} PARTITION OF events \
             FOR VALUES FROM (to_timestamp({})) TO (to_timestamp({}))",
            start.unix_timestamp(),
            end.unix_timestamp()
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS deliveries_{name} PARTITION OF deliveries \
             FOR VALUES FROM ('{first}') TO ('{last}') WITH (fillfactor = 80)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS attempts_{name} PARTITION OF attempts FOR VALUES FROM ('{first}') TO ('{last}')"
        ),
    ]
}
