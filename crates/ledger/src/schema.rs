//! Migrations, and the check whether any are missing.

use std::time::Duration;

use diesel::{
    QueryableByName,
    migration::{Migration, MigrationSource},
    pg::Pg,
    sql_types::{Bool, Text},
};
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::{
    clock::now,
    error::LedgerError,
    pool::Ledger,
    upkeep::{
        partitions::{around, make_partitions},
        unsuccessful,
    },
};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// The advisory lock: one process at a time migrates.
const SCHEMA_LOCK: i64 = 0x7765_6268_6f6f_6b73;

/// How often a process tries again while another one migrates.
const LOOK: Duration = Duration::from_millis(500);

/// The migration that needs the index of `events_key` on every partition.
const NEEDS_KEY: &str = "20261123000008";
/// The migration that needs `unsuccessful_deliveries` to be filled.
const NEEDS_UNSUCCESSFUL: &str = "20261123000013";

/// How the database's schema compares with what this program was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// Every migration is there (and perhaps newer ones).
    Current,
    /// These migrations are missing.
    Behind(Vec<String>),
}

/// The differences between the database's migrations and this program's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationsSeen {
    /// Those that the database lacks.
    pub missing: Vec<String>,
    /// The versions of those that the database has and this program does not know: it is older.
    pub unknown: Vec<String>,
    /// The version of the last one that the database has.
    pub last: Option<String>,
}

impl Ledger {
    /// Applies the missing migrations, and makes the partitions around today by the database's clock. Returns the
    /// applied migrations. Another call goes on after an interruption.
    ///
    /// # Errors
    /// When the database does not answer or refuses a migration.
    pub async fn migrate(&self) -> Result<Vec<String>, LedgerError> {
        let mut conn = self.connection().await?;
        conn.batch_execute("SET statement_timeout = 0").await?;
        // Polls: waiting in a statement would hold a snapshot, and building an index waits for those.
        let lock = format!("SELECT pg_try_advisory_lock({SCHEMA_LOCK}) AS had");
        while !diesel::sql_query(&lock).get_result::<Lock>(&mut conn).await?.had {
            tokio::time::sleep(LOOK).await;
        }
        let (mut conn, mut applied) = run_migrations(conn, |version| version < NEEDS_KEY)?;
        EVENTS_KEY.build(&mut conn).await?;
        let (mut conn, more) = run_migrations(conn, |version| version < NEEDS_UNSUCCESSFUL)?;
        unsuccessful::fill(&mut conn).await?;
        let (mut conn, rest) = run_migrations(conn, |_| true)?;
        applied.extend(more.into_iter().chain(rest));
        EVENTS_BY_ID.build(&mut conn).await?;
        let today = now(&mut conn).await?.date();
        make_partitions(&mut conn, around(today)).await?;
        Ok(applied)
    }

    /// Compares the database's schema with this program's.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn schema_check(&self) -> Result<SchemaState, LedgerError> {
        let MigrationsSeen { missing, .. } = self.migrations_seen().await?;
        Ok(if missing.is_empty() { SchemaState::Current } else { SchemaState::Behind(missing) })
    }

    /// Which migrations the database lacks, and which it has that this program does not know.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn migrations_seen(&self) -> Result<MigrationsSeen, LedgerError> {
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
        let known: Vec<_> = known.iter().map(|migration| migration.name().to_string()).collect();
        let is = |name: &str, row: &Version| name.replace('-', "").starts_with(&row.version);
        let is_known = |row: &Version| known.iter().any(|name| is(name, row));
        Ok(MigrationsSeen {
            missing: known.iter().filter(|name| !present.iter().any(|row| is(name, row))).cloned().collect(),
            unknown: present.iter().filter(|row| !is_known(row)).map(|row| row.version.clone()).collect(),
            last: present.into_iter().map(|row| row.version).max(),
        })
    }
}

#[derive(QueryableByName)]
struct Lock {
    #[diesel(sql_type = Bool)]
    had: bool,
}

/// Runs the missing migrations whose versions are `wanted`, in their order. Returns the versions.
fn run_migrations(
    conn: AsyncPgConnection,
    wanted: impl Fn(&str) -> bool,
) -> Result<(AsyncPgConnection, Vec<String>), LedgerError> {
    let mut harness = AsyncMigrationHarness::new(conn);
    let mut applied = Vec::new();
    for migration in harness.pending_migrations(MIGRATIONS).map_err(LedgerError::Migration)? {
        let version = migration.name().version().to_string();
        if wanted(&version) {
            harness.run_migration(&migration).map_err(LedgerError::Migration)?;
            applied.push(version);
        }
    }
    Ok((harness.into_inner(), applied))
}

/// An index of `events` that was added after partitions had been made.
struct EventsIndex {
    name: &'static str,
    /// The end of the indexes' names on those partitions.
    suffix: &'static str,
    kind: &'static str,
    columns: &'static str,
}

const EVENTS_KEY: EventsIndex = EventsIndex {
    name: "events_key",
    suffix: "_event_type_key",
    kind: "UNIQUE INDEX",
    columns: "occurred_at, id, tenant_id, event_type",
};
const EVENTS_BY_ID: EventsIndex = EventsIndex { name: "events_by_id", suffix: "_by_id", kind: "INDEX", columns: "id" };

/// A partition of `events` whose index is missing, unfinished, or built but not attached.
#[derive(QueryableByName)]
struct Unindexed {
    #[diesel(sql_type = Text)]
    partition: String,
    #[diesel(sql_type = Bool)]
    is_built: bool,
}

impl EventsIndex {
    /// Builds the index on one partition after another. Each build reads its partition twice. Nobody waits.
    async fn build(&self, conn: &mut AsyncPgConnection) -> Result<(), LedgerError> {
        let Self { name, suffix, kind, columns } = self;
        let find = diesel::sql_query(include_str!("unindexed_partitions.sql"));
        let unindexed: Vec<Unindexed> = find.bind::<Text, _>(*name).bind::<Text, _>(*suffix).load(conn).await?;
        for Unindexed { partition, is_built } in unindexed {
            let index = format!("{partition}{suffix}");
            if !is_built {
                conn.batch_execute(&format!("DROP INDEX IF EXISTS {index}")).await?;
                conn.batch_execute(&format!("CREATE {kind} CONCURRENTLY {index} ON {partition} ({columns})")).await?;
            }
            // Tries again while somebody who planned a read of the partition meanwhile has locked the index.
            conn.batch_execute(&format!(
                "DO $$ BEGIN SET LOCAL lock_timeout = '500ms'; \
                   LOOP BEGIN ALTER INDEX {name} ATTACH PARTITION {index}; EXIT; \
                        EXCEPTION WHEN lock_not_available THEN PERFORM pg_sleep(0.5); END; END LOOP; END $$"
            ))
            .await?;
        }
        Ok(())
    }
}
