//! The schema's age.

use diesel::{QueryableByName, migration::MigrationSource, pg::Pg, sql_types::Text};
use diesel_async::{AsyncMigrationHarness, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use time::Date;

use crate::{error::LedgerError, partitions::make_partitions, pool::Ledger};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Only one process at a time migrates or makes partitions.
pub(crate) const SCHEMA_LOCK: i64 = 0x7765_6268_6f6f_6b73;

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
}
