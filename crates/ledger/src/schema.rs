//! Applies migrations, and checks whether any are missing.

use std::{path::PathBuf, time::Duration};

use diesel::{QueryResult, migration::MigrationSource};
use diesel_async::{AsyncMigrationHarness, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::MigrationHarness;

use crate::{
    connect::{clock::now, pool::Ledger},
    error::LedgerError,
    migrations::Migrations,
    partitions::{around, make_partitions},
    statement::sql,
};

/// The advisory lock: one process at a time migrates.
const SCHEMA_LOCK: i64 = 0x7765_6268_6f6f_6b73;

/// How often a process tries again while another one migrates.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The differences between the database's migrations and this program's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationsSeen {
    /// Those that the database lacks.
    pub missing: Vec<String>,
    /// The versions of those that the database has and this program does not know: it is older.
    pub unknown: Vec<String>,
    /// The names of those that both have, in their order.
    pub applied: Vec<String>,
    /// The version of the last one that the database has.
    pub last: Option<String>,
    /// True if the database has migrations, and the baseline is not among them: another build made it.
    pub has_other_baseline: bool,
}

impl MigrationsSeen {
    /// Compares the names of a program's migrations with the versions of those that a database has.
    fn of(mut known: Vec<String>, present: &[String]) -> Self {
        known.sort();
        let is = |name: &str, version: &str| name.replace('-', "").starts_with(version);
        let is_missing = |name: &&String| !present.iter().any(|version| is(name, version));
        let is_unknown = |version: &&String| !known.iter().any(|name| is(name, version));
        Self {
            missing: known.iter().filter(is_missing).cloned().collect(),
            unknown: present.iter().filter(is_unknown).cloned().collect(),
            applied: known.iter().filter(|name| !is_missing(name)).cloned().collect(),
            has_other_baseline: !present.is_empty() && known.as_slice().first().is_some_and(|name| is_missing(&name)),
            last: present.iter().max().cloned(),
        }
    }

    /// The migrations to revert, the newest first, so that only those of `kept` remain; or why that is not possible.
    fn reverting(&self, kept: &[String]) -> Result<Vec<String>, String> {
        if !self.unknown.is_empty() {
            let newer = self.unknown.join(", ");
            return Err(format!("a newer version applied {newer}: run webhookctl of that version"));
        }
        if let Some(missing) = kept.iter().find(|name| self.missing.contains(name)) {
            return Err(format!("it lacks {missing}: run `webhookctl migrate`"));
        }
        Ok(self.applied.iter().rev().filter(|name| !kept.contains(name)).cloned().collect())
    }
}

impl Ledger {
    /// The same handle for a program with the migrations of a folder, such as a later version of this one.
    #[must_use]
    pub fn with_migrations(mut self, folder: PathBuf) -> Self {
        self.migrations = Migrations::OfFolder(folder);
        self
    }

    /// Applies the missing migrations, and makes the partitions around today by the database's clock. Returns the
    /// applied migrations. Another call goes on after an interruption.
    ///
    /// # Errors
    /// When the database does not answer or refuses a migration. [`LedgerError::OtherBaseline`]: nothing was changed.
    pub async fn migrate(&self) -> Result<Vec<String>, LedgerError> {
        let (conn, _) = self.migrating().await?;
        let (mut conn, applied) = apply(conn, &self.migrations)?;
        let today = now(&mut conn).await?.date();
        make_partitions(&mut conn, around(today)).await?;
        Ok(applied)
    }

    /// Takes the schema back to that of a release, the newest migration first, each in a transaction. Returns the migrations that
    /// were reverted. Another call continues after an interruption.
    ///
    /// # Errors
    /// [`LedgerError::UnknownRelease`], and [`LedgerError::NoWayBack`] if the schema is older than that of the release, or has
    /// migrations that this program does not know: nothing was changed. Otherwise as [`Ledger::migrate`].
    pub async fn migrate_back(&self, release: &str) -> Result<Vec<String>, LedgerError> {
        let kept = self.migrations.of_release(release)?;
        let (conn, seen) = self.migrating().await?;
        let reverting = seen.reverting(&kept).map_err(LedgerError::NoWayBack)?;
        let mut harness = AsyncMigrationHarness::new(conn);
        for _ in &reverting {
            harness.revert_last_migration(self.migrations.clone()).map_err(LedgerError::Migration)?;
        }
        Ok(reverting)
    }

    /// The names of the migrations that [`Ledger::migrate_back`] would revert.
    ///
    /// # Errors
    /// As [`Ledger::migrate_back`].
    pub async fn migrate_back_plan(&self, release: &str) -> Result<Vec<String>, LedgerError> {
        let kept = self.migrations.of_release(release)?;
        let seen = self.migrations_seen().await?;
        if seen.has_other_baseline {
            return Err(LedgerError::OtherBaseline);
        }
        seen.reverting(&kept).map_err(LedgerError::NoWayBack)
    }

    /// A connection that holds the lock of migrations, and what it sees.
    async fn migrating(&self) -> Result<(AsyncPgConnection, MigrationsSeen), LedgerError> {
        let mut conn = self.connection().await?;
        conn.batch_execute("SET statement_timeout = 0").await?;
        // Polls: waiting in a statement would hold a snapshot, and building an index waits for those.
        let lock = format!("SELECT pg_try_advisory_lock({SCHEMA_LOCK}) AS had");
        while !sql(&lock).value::<bool>(&mut conn).await? {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let seen = self.migrations.compared(&versions(&mut conn).await?)?;
        if seen.has_other_baseline {
            return Err(LedgerError::OtherBaseline);
        }
        Ok((conn, seen))
    }

    /// The names of the migrations that the database lacks: [`Ledger::migrate`] would apply them.
    ///
    /// # Errors
    /// When the database does not answer. [`LedgerError::OtherBaseline`]: it cannot be used, nor migrated.
    pub async fn migrations_missing(&self) -> Result<Vec<String>, LedgerError> {
        let seen = self.migrations_seen().await?;
        if seen.has_other_baseline { Err(LedgerError::OtherBaseline) } else { Ok(seen.missing) }
    }

    /// Which migrations the database lacks, and which it has that this program does not know.
    pub async fn migrations_seen(&self) -> Result<MigrationsSeen, LedgerError> {
        let present = self.run("migrations_seen", async |conn| versions(conn).await).await?;
        self.migrations.compared(&present)
    }
}

impl Migrations {
    fn compared(&self, present: &[String]) -> Result<MigrationsSeen, LedgerError> {
        let known = self.migrations().map_err(LedgerError::Migration)?;
        Ok(MigrationsSeen::of(known.iter().map(|migration| migration.name().to_string()).collect(), present))
    }
}

/// The versions of the migrations that the database has.
async fn versions(conn: &mut AsyncPgConnection) -> QueryResult<Vec<String>> {
    let exists = "SELECT relname::text AS version FROM pg_class WHERE oid = to_regclass('__diesel_schema_migrations')";
    if sql(exists).values::<String>(conn).await?.is_empty() {
        return Ok(Vec::new());
    }
    sql("SELECT version::text FROM __diesel_schema_migrations").values(conn).await
}

/// Applies the missing migrations in the order of their versions. Returns the versions.
fn apply(conn: AsyncPgConnection, migrations: &Migrations) -> Result<(AsyncPgConnection, Vec<String>), LedgerError> {
    let mut harness = AsyncMigrationHarness::new(conn);
    let applied = harness.run_pending_migrations(migrations.clone()).map_err(LedgerError::Migration);
    let applied: Vec<String> = applied?.iter().map(ToString::to_string).collect();
    Ok((harness.into_inner(), applied))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(known: &[&str], present: &[&str]) -> MigrationsSeen {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        MigrationsSeen::of(owned(known), &owned(present))
    }

    #[test]
    fn a_database_is_compared_by_its_migrations_and_one_without_the_baseline_is_another_builds() {
        let known = ["2026-11-28-000002_next", "2026-11-27-000001_baseline"];
        let none = seen(&known, &[]);
        assert_eq!(none.missing, ["2026-11-27-000001_baseline", "2026-11-28-000002_next"]);
        assert_eq!((none.has_other_baseline, none.last), (false, None));

        let older = seen(&known, &["20261127000001"]);
        assert_eq!((older.missing, older.has_other_baseline), (vec!["2026-11-28-000002_next".to_owned()], false));

        let newer = seen(&known, &["20261127000001", "20261128000002", "20270101000003"]);
        assert_eq!((newer.missing.is_empty(), newer.unknown), (true, vec!["20270101000003".to_owned()]));
        assert_eq!((newer.has_other_baseline, newer.last.as_deref()), (false, Some("20270101000003")));

        let former = seen(&known, &["20261121000001", "20261127000020"]);
        assert_eq!((former.has_other_baseline, former.missing.len(), former.unknown.len()), (true, 2, 2));
    }

    #[test]
    fn a_schema_goes_back_only_by_migrations_that_this_program_knows() {
        let known = ["2026-11-27-000001_baseline", "2026-11-28-000002_next"];
        let back = |present: &[&str]| seen(&known, present).reverting(&[known[0].to_owned()]);
        assert_eq!(back(&["20261127000001", "20261128000002"]), Ok(vec![known[1].to_owned()]));
        assert_eq!(back(&["20261127000001"]), Ok(Vec::new()));
        assert!(back(&[]).is_err_and(|why| why.contains("webhookctl migrate")));
        assert!(back(&["20261127000001", "20270101000003"]).is_err_and(|why| why.contains("20270101000003")));
    }
}
