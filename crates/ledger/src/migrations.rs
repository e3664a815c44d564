//! The migrations that a handle on the ledger goes by.

use std::path::PathBuf;

use diesel::{
    migration::{Migration, MigrationSource, Result},
    pg::Pg,
};
use diesel_migrations::{EmbeddedMigrations, FileBasedMigrations, embed_migrations};

use crate::error::LedgerError;

/// The migrations of this program. The first one is the baseline.
const OWN_MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Releases, oldest first, and how many of the migrations each of them has. The first release has the baseline.
const RELEASES: [(&str, usize); 1] = [("1.0", 1)];

/// Those of this program, or those of a folder.
#[derive(Clone, Debug, Default)]
pub(crate) enum Migrations {
    #[default]
    Own,
    OfFolder(PathBuf),
}

impl Migrations {
    /// The names of the migrations that a release has, in their order.
    pub(crate) fn of_release(&self, release: &str) -> std::result::Result<Vec<String>, LedgerError> {
        let known = || RELEASES.map(|(release, _)| release).join(", ");
        let found = RELEASES.iter().find(|(name, _)| *name == release);
        let (_, count) = found.ok_or_else(|| LedgerError::UnknownRelease { known: known() })?;
        let migrations = self.migrations().map_err(LedgerError::Migration)?;
        let mut names: Vec<_> = migrations.iter().map(|migration| migration.name().to_string()).collect();
        names.sort();
        names.truncate(*count);
        Ok(names)
    }
}

impl MigrationSource<Pg> for Migrations {
    fn migrations(&self) -> Result<Vec<Box<dyn Migration<Pg>>>> {
        match self {
            Self::Own => OWN_MIGRATIONS.migrations(),
            Self::OfFolder(folder) => FileBasedMigrations::from_path(folder)?.migrations(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use ring::digest::{SHA256, digest};

    /// A database knows a baseline by the number in its name, so an edit must give it another number.
    #[test]
    fn the_number_in_the_baselines_name_is_computed_from_its_content() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let name = names.min().unwrap();
        let content = digest(&SHA256, &fs::read(folder.join(&name).join("up.sql")).unwrap());
        let number = content.as_ref().iter().fold(0, |number, byte| (number * 256 + u32::from(*byte)) % 1_000_000);
        let (day, _) = name.split_at("2026-11-27".len());
        assert_eq!(name, format!("{day}-{number:06}_baseline"), "rename its folder to the latter");
    }
}
